#include "coordinator/shell/coord_blocks.h"

#include "base/assert.h"
#include "blocks/shell/block_store.h"
#include "blocks/shell/known_model.h"
#include "coordinator/shell/model_source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_THREADS 2
#define TELL_NS INT64_C(500000000) // members hear of each other in steps of this
#define LOG_NS INT64_C(5000000000)  // between two lines about reading
#define N_ENTRIES BLOCK_FRAME_PEERS_MAX

// A member with a blocks link. Its place in the table is its slot in frames.
struct entry {
	uint32_t client; // 0: free
	struct node_id id;
	struct msg_peer who;
	uint32_t who_version; // grows when `who` changes
	uint8_t *set;         // (set_len) what it holds, as it came; owned; NULL: it has not said
	size_t set_len;
	uint32_t set_version;
	struct block_progress progress;
	uint32_t told_who[N_ENTRIES], told_set[N_ENTRIES]; // of the others: versions; 0: nothing
};

struct coord_blocks {
	struct coord_blocks_params p;
	struct block_io *io;
	struct block_server *server;
	struct loop_timer timer;
	int fd; // the model file
	uint8_t *bytes; // of the manifest, owned
	size_t bytes_len;
	struct manifest manifest;
	bool is_ready;
	struct entry entries[N_ENTRIES];

	atomic_bool *compared;   // (n_blocks) of them, once: the file is what the manifest says. Owned

	struct block_job job; // makes the manifest
	bool is_job_busy;
	struct manifest_source source;
	struct manifest_progress reading;
	int64_t begin_ns, logged_ns;
	enum err job_err;
	struct errmsg job_em;
};

static struct entry *find_client(struct coord_blocks *b, uint32_t client)
{
	for (size_t i = 0; i < N_ENTRIES; i++)
		if (client != 0 && b->entries[i].client == client)
			return &b->entries[i];
	return NULL;
}

static struct entry *find_member(const struct coord_blocks *b, struct node_id id)
{
	for (size_t i = 0; i < N_ENTRIES; i++)
		if (b->entries[i].client != 0 && node_id_is(b->entries[i].id, id))
			return (struct entry *)(uintptr_t)&b->entries[i];
	return NULL;
}

// ---- who is told of whom

// pair_psk derives the key of two members' blocks links: keyed with the one's psk, over the other's and both ids, in an order both ends share.
static bool pair_psk(const struct coord_blocks *b, const struct entry *x, const struct entry *y, uint8_t out[KEY_BYTES])
{
	bool is_ordered = memcmp(x->id.b, y->id.b, NODE_ID_BYTES) < 0;
	const struct entry *low = is_ordered ? x : y, *high = is_ordered ? y : x;
	uint8_t keys[2][KEY_BYTES];
	bool ok = coordinator_find_psk(b->p.core, low->who.public_key, keys[0]) && coordinator_find_psk(b->p.core, high->who.public_key, keys[1]);
	if (ok) {
		crypto_generichash_state st;
		crypto_generichash_init(&st, keys[0], KEY_BYTES, KEY_BYTES);
		crypto_generichash_update(&st, (const uint8_t *)"hearth blocks pair", 18);
		crypto_generichash_update(&st, keys[1], KEY_BYTES);
		crypto_generichash_update(&st, low->id.b, NODE_ID_BYTES);
		crypto_generichash_update(&st, high->id.b, NODE_ID_BYTES);
		crypto_generichash_final(&st, out, KEY_BYTES);
		sodium_memzero(&st, sizeof st);
	}
	sodium_memzero(keys, sizeof keys);
	return ok;
}

static void tell_who(struct coord_blocks *b, struct entry *to, size_t slot)
{
	const struct entry *e = &b->entries[slot];
	struct block_frame f = {.type = BLOCK_FRAME_PEER};
	f.u.peer.slot = (uint16_t)slot;
	f.u.peer.who = e->who;
	if (!pair_psk(b, to, e, f.u.peer.who.psk))
		return;
	block_server_send(b->server, to->client, &f, NULL, 0);
	sodium_memzero(&f, sizeof f);
	to->told_who[slot] = e->who_version;
	to->told_set[slot] = 0;
}

static void tell_set(struct coord_blocks *b, struct entry *to, size_t slot)
{
	const struct entry *e = &b->entries[slot];
	struct block_frame f = {.type = BLOCK_FRAME_PEER_HAVE};
	f.u.have.slot = (uint16_t)slot;
	block_server_send(b->server, to->client, &f, e->set, e->set_len);
	to->told_set[slot] = e->set_version;
}

static void tell_gone(struct coord_blocks *b, struct entry *to, size_t slot)
{
	struct block_frame f = {.type = BLOCK_FRAME_PEER};
	f.u.peer.slot = (uint16_t)slot;
	to->told_who[slot] = to->told_set[slot] = 0;
	block_server_send(b->server, to->client, &f, NULL, 0);
}

// tell brings one member up to date; it takes news only since it has said what it holds itself.
static void tell(struct coord_blocks *b, struct entry *to)
{
	for (size_t slot = 0; slot < N_ENTRIES && to->client != 0 && to->set != NULL; slot++) {
		const struct entry *e = &b->entries[slot];
		if (e == to || e->client == 0 || e->set == NULL)
			continue;
		if (to->told_who[slot] != e->who_version)
			tell_who(b, to, slot);
		if (to->told_who[slot] == e->who_version && to->told_set[slot] != e->set_version)
			tell_set(b, to, slot);
	}
}

static void refresh(struct coord_blocks *b, struct entry *e)
{
	struct msg_peer who;
	if (!coordinator_find_peer(b->p.core, e->id, &who))
		return; // coord_blocks_disconnect ends it
	if (memcmp(&who, &e->who, sizeof who) != 0)
		e->who_version++;
	e->who = who;
}

static void on_timer(void *ctx)
{
	struct coord_blocks *b = ctx;
	for (size_t i = 0; i < N_ENTRIES; i++)
		if (b->entries[i].client != 0)
			refresh(b, &b->entries[i]);
	for (size_t i = 0; i < N_ENTRIES; i++)
		if (b->entries[i].client != 0)
			tell(b, &b->entries[i]);
	int64_t now_ns = loop_clock_ns();
	if (b->is_job_busy && now_ns - b->logged_ns >= LOG_NS) {
		b->logged_ns = now_ns;
		manifest_progress_log(b->p.log, &b->source, b->begin_ns, now_ns);
	}
	loop_timer_set(b->p.loop, &b->timer, now_ns + TELL_NS);
}

static void forget(struct coord_blocks *b, struct entry *e)
{
	size_t slot = (size_t)(e - b->entries);
	free(e->set);
	sodium_memzero(e, sizeof *e);
	for (size_t i = 0; i < N_ENTRIES; i++)
		if (b->entries[i].client != 0 && b->entries[i].told_who[slot] != 0)
			tell_gone(b, &b->entries[i], slot);
}

void coord_blocks_disconnect(struct coord_blocks *b, struct node_id node)
{
	block_server_end_peer(b->server, node); // its on_down forgets it
}

// ---- what clients say

static void greet(struct coord_blocks *b, uint32_t client)
{
	struct block_frame f = {.type = BLOCK_FRAME_HELLO};
	memcpy(f.u.hello, b->manifest.hash, BLOCK_HASH_BYTES);
	block_server_send(b->server, client, &f, NULL, 0);
}

static void on_up(void *ctx, uint32_t client, const struct link_info *info)
{
	struct coord_blocks *b = ctx;
	struct entry *e = find_member(b, info->peer);
	for (size_t i = 0; e == NULL && i < N_ENTRIES; i++)
		if (b->entries[i].client == 0)
			e = &b->entries[i];
	if (e == NULL)
		return; // it is served all the same; the others do not hear of it
	if (e->client == 0)
		*e = (struct entry){.id = info->peer, .progress = {.left_ms = UINT32_MAX}};
	e->client = client; // a newer link of the same member takes the place
	memset(e->told_who, 0, sizeof e->told_who);
	memset(e->told_set, 0, sizeof e->told_set);
	refresh(b, e);
	if (b->is_ready)
		greet(b, client);
}

static void on_down(void *ctx, uint32_t client)
{
	struct coord_blocks *b = ctx;
	struct entry *e = find_client(b, client);
	if (e != NULL)
		forget(b, e);
}

static void send_part(struct coord_blocks *b, uint32_t client, uint32_t offset)
{
	struct block_frame f = {.type = BLOCK_FRAME_MANIFEST_PART};
	size_t len = 0;
	if (b->is_ready && offset < b->bytes_len) {
		len = b->bytes_len - offset < BLOCK_FRAME_PART_MAX ? b->bytes_len - offset : BLOCK_FRAME_PART_MAX;
		f.u.part.total = (uint32_t)b->bytes_len;
		f.u.part.offset = offset;
	} else {
		f.u.part.state = BLOCK_PART_NOT_READY;
	}
	block_server_send(b->server, client, &f, len > 0 ? b->bytes + offset : NULL, len);
}

static bool on_have(struct coord_blocks *b, struct entry *e, const struct block_frame *f)
{
	uint64_t *words = b->is_ready ? malloc(block_set_words(b->manifest.n_blocks) * sizeof *words) : NULL;
	uint8_t *copy = malloc(f->u.have.len);
	struct block_set set = {0};
	if (words != NULL)
		block_set_init(&set, words, b->manifest.n_blocks);
	bool ok = words != NULL && copy != NULL && block_set_decode(f->u.have.set, f->u.have.len, &set) == OK;
	free(words);
	if (!ok) {
		free(copy);
		return false;
	}
	memcpy(copy, f->u.have.set, f->u.have.len);
	free(e->set);
	e->set = copy;
	e->set_len = f->u.have.len;
	e->set_version++;
	return true;
}

static bool on_other(void *ctx, uint32_t client, const struct block_frame *f)
{
	struct coord_blocks *b = ctx;
	struct entry *e = find_client(b, client);
	switch (f->type) {
	case BLOCK_FRAME_MANIFEST_GET: send_part(b, client, f->u.manifest_offset); return true;
	case BLOCK_FRAME_HAVE: return e == NULL || on_have(b, e, f);
	case BLOCK_FRAME_PROGRESS:
		if (e != NULL)
			e->progress = f->u.progress;
		return true;
	default: return false;
	}
}

// read_block: the file may have been written to since it was read; what differs is given to nobody.
static enum err read_block(void *ctx, uint32_t block, uint8_t *buf, struct errmsg *em)
{
	struct coord_blocks *b = ctx;
	enum err e = block_file_read(b->fd, model_path(b->p.model), &b->manifest, block, buf, em);
	if (e != OK || atomic_load_explicit(&b->compared[block], memory_order_relaxed))
		return e;
	if (!manifest_block_matches(&b->manifest, block, buf, manifest_block_bytes(&b->manifest, block)))
		return errmsg_fail(em, ERR_FORMAT, "%s: is not what it was when this program read it (block %" PRIu32 " at byte %" PRIu64 " differs): put the file back, or "
			"look at it with hearth cache verify and start again", model_path(b->p.model), block, (uint64_t)block * b->manifest.block_bytes);
	atomic_store_explicit(&b->compared[block], true, memory_order_relaxed);
	return OK;
}

void coord_blocks_take(struct coord_blocks *b, struct link *link, const struct link_info *info)
{
	block_server_take(b->server, link, info);
}

void coord_blocks_note_work(struct coord_blocks *b)
{
	block_server_note_work(b->server);
}

bool coord_blocks_progress(const struct coord_blocks *b, struct node_id id, struct block_progress *out)
{
	const struct entry *e = find_member(b, id);
	if (e != NULL)
		*out = e->progress;
	return e != NULL;
}

void coord_blocks_get_stats(const struct coord_blocks *b, struct block_server_stats *out)
{
	block_server_get_stats(b->server, out);
}

const uint8_t *coord_blocks_model_hash(const struct coord_blocks *b)
{
	return b->is_ready ? b->manifest.model_hash : NULL;
}

bool coord_blocks_reading(const struct coord_blocks *b, struct block_progress *out)
{
	int64_t ns = loop_clock_ns() - b->begin_ns;
	*out = (struct block_progress){.state = BLOCK_PROGRESS_FETCHING, .bytes_total = b->source.file_bytes, .bytes_done = atomic_load(&b->reading.bytes_done),
		.left_ms = UINT32_MAX};
	out->rate = ns > 0 ? (uint64_t)((double)out->bytes_done * 1e9 / (double)ns) : 0;
	double left_ms = out->rate > 0 ? (double)(out->bytes_total - out->bytes_done) * 1e3 / (double)out->rate : 1e12;
	if (left_ms < UINT32_MAX)
		out->left_ms = (uint32_t)left_ms;
	return b->is_job_busy;
}

// ---- the manifest

// use_manifest takes over what was found or made. False: it is not this model's.
static enum err use_manifest(struct coord_blocks *b, struct errmsg *em)
{
	enum err e = manifest_parse(b->bytes, b->bytes_len, &b->manifest, em);
	if (e != OK)
		return e;
	b->compared = calloc(b->manifest.n_blocks, sizeof *b->compared);
	if (b->compared == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory to serve the model's blocks");
	b->is_ready = true;
	block_server_set_model(b->server, &b->manifest);
	for (size_t i = 0; i < N_ENTRIES; i++)
		if (b->entries[i].client != 0)
			greet(b, b->entries[i].client);
	return OK;
}

static void on_made(struct block_job *job)
{
	struct coord_blocks *b = (struct coord_blocks *)((char *)job - offsetof(struct coord_blocks, job));
	b->is_job_busy = false;
	if (b->job_err == OK)
		b->job_err = use_manifest(b, &b->job_em);
	if (b->job_err == ERR_CANCELLED)
		return;
	if (b->job_err != OK) {
		log_line(b->p.log, LOG_ERROR, "no other machine can take part: %s", b->job_em.text);
		return;
	}
	manifest_progress_log(b->p.log, &b->source, b->begin_ns, loop_clock_ns());
	if (b->p.on_known != NULL)
		b->p.on_known(b->p.ctx);
}

static void run_make(struct block_job *job, struct block_zip *zip)
{
	struct coord_blocks *b = (struct coord_blocks *)((char *)job - offsetof(struct coord_blocks, job));
	(void)zip;
	b->job_err = known_model_make(b->p.known_dir, &b->source, &b->bytes, &b->bytes_len, &b->job_em);
}

// know_model finds the manifest, or begins to make it.
static enum err know_model(struct coord_blocks *b, struct errmsg *em)
{
	struct errmsg why;
	bool is_known = b->p.known_dir != NULL && known_model_find(b->p.known_dir, model_path(b->p.model), &b->bytes, &b->bytes_len, &why) == OK;
	if (is_known)
		return use_manifest(b, em);
	enum err e = model_source_open(b->p.model, &b->source, em);
	if (e != OK)
		return e;
	b->source.progress = &b->reading;
	b->begin_ns = b->logged_ns = loop_clock_ns();
	b->is_job_busy = true;
	b->job = (struct block_job){.run = run_make, .done = on_made};
	block_io_submit(b->io, &b->job);
	return OK;
}

uint64_t coord_blocks_bytes(uint64_t file_bytes)
{
	uint64_t n_blocks = file_bytes / BLOCK_BYTES_DEFAULT + 1;
	// Hashes, and as much again for tensors; twice, while it is made.
	return BLOCK_SERVER_BYTES + 2 * n_blocks * 2 * BLOCK_HASH_BYTES + N_ENTRIES * block_set_encoded_max((uint32_t)n_blocks);
}

// ---- opening

static enum err open_parts(struct coord_blocks *b, struct errmsg *em)
{
	struct block_server_params s = {.loop = b->p.loop, .log = b->p.log, .limits = upload_limits_default, .ctx = b, .read = read_block, .on_up = on_up, .on_down = on_down,
		.on_other = on_other};
	s.limits.rate_max = b->p.upload_max;
	b->fd = open(model_path(b->p.model), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (b->fd < 0)
		return errmsg_fail(em, ERR_IO, "%s: cannot open: %s", model_path(b->p.model), strerror(errno));
	enum err e = block_io_open(b->p.loop, N_THREADS, &b->io, em);
	s.io = b->io;
	return e == OK ? block_server_open(&s, &b->server, em) : e;
}

enum err coord_blocks_open(const struct coord_blocks_params *p, struct coord_blocks **out, struct errmsg *em)
{
	struct coord_blocks *b = calloc(1, sizeof *b);
	*out = NULL;
	if (b == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory to serve the model's blocks");
	b->p = *p;
	b->fd = -1;
	loop_timer_init(&b->timer, on_timer, b);
	enum err e = open_parts(b, em);
	if (e == OK)
		e = know_model(b, em);
	if (e != OK) {
		coord_blocks_close(b);
		return e;
	}
	loop_timer_set(p->loop, &b->timer, loop_clock_ns() + TELL_NS);
	*out = b;
	return OK;
}

static bool job_is_done(void *ctx)
{
	return !((struct coord_blocks *)ctx)->is_job_busy;
}

void coord_blocks_close(struct coord_blocks *b)
{
	if (b == NULL)
		return;
	atomic_store(&b->reading.is_cancelled, true);
	loop_timer_clear(b->p.loop, &b->timer);
	if (b->io != NULL)
		loop_finish(b->p.loop, job_is_done, b);
	block_server_close(b->server);
	block_io_close(b->io);
	for (size_t i = 0; i < N_ENTRIES; i++)
		free(b->entries[i].set);
	model_source_close(&b->source);
	free(b->compared);
	free(b->bytes);
	if (b->fd >= 0)
		close(b->fd);
	sodium_memzero(b, sizeof *b);
	free(b);
}
