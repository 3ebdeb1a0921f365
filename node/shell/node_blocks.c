#include "node/shell/node_blocks_state.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define TICK_NS (SECOND / 2)
#define SLICE_BLOCKS 64 // verified by one job: reading for others comes between two of them

static void verify_next(struct node_blocks *nb);

static void job_start(struct node_blocks *nb, void (*run)(struct block_job *, struct block_zip *), void (*done)(struct block_job *))
{
	ASSERT(!nb->is_job_busy);
	nb->is_job_busy = true;
	nb->job_err = OK;
	nb->job = (struct block_job){.run = run, .done = done};
	block_io_submit(nb->io, &nb->job);
}

static struct node_blocks *of_job(struct block_job *job)
{
	return (struct node_blocks *)((char *)job - offsetof(struct node_blocks, job));
}

uint64_t node_blocks_bytes(uint64_t file_bytes, bool is_cached)
{
	uint64_t n_blocks = file_bytes / BLOCK_BYTES_DEFAULT + 1, links = NB_PEER_LINKS_MAX + 1;
	if (is_cached) // asked for and being checked, one more in each thread, and what links read into
		return BLOCK_SERVER_BYTES + (uint64_t)(NB_UNDER_WAY_MAX + NB_THREADS + 1) * BLOCK_BYTES_DEFAULT + links * BLOCKS_RECORD_MAX;
	// The manifest comes in parts and is kept whole: hashes, and as much again for tensors. A set of blocks for each peer.
	return BLOCK_SERVER_BYTES + n_blocks * 2 * BLOCK_HASH_BYTES + (NB_OWN_SETS + BLOCK_FRAME_PEERS_MAX) * block_set_words((uint32_t)n_blocks) * sizeof(uint64_t);
}

// ---- the model: which one, its manifest, its store

static void fail_model(struct node_blocks *nb, enum err err, const char *text)
{
	nb->state = NB_FAILED;
	if (nb->p.on_model != NULL)
		nb->p.on_model(nb->p.ctx, err, text);
	else
		log_line(nb->p.log, LOG_ERROR, "this machine gives no blocks to others: %s", text);
}

static void on_header(void *ctx, enum err err, const char *text)
{
	struct node_blocks *nb = ctx;
	nb->has_header = err == OK;
	nb->p.on_model(nb->p.ctx, err, text);
}

static bool make_sets(struct node_blocks *nb)
{
	struct block_set *const own[NB_OWN_SETS] = {&nb->wanted, &nb->in_use, &nb->present, &nb->verified, &nb->job_in, &nb->job_out, &nb->job_keep};
	uint32_t n = nb->manifest->n_blocks;
	size_t n_words = block_set_words(n);
	nb->words = calloc((ARRAY_LEN(own) + BLOCK_FRAME_PEERS_MAX) * n_words, sizeof *nb->words);
	nb->job_buf = malloc(nb->manifest->block_bytes);
	if (nb->words == NULL || nb->job_buf == NULL)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		block_set_init(own[i], nb->words + i * n_words, n);
	for (size_t i = 0; i < BLOCK_FRAME_PEERS_MAX; i++)
		block_set_init(&nb->peers[i].have, nb->words + (ARRAY_LEN(own) + i) * n_words, n);
	return true;
}

// begin_ready: the manifest is known, and where blocks lie.
static void begin_ready(struct node_blocks *nb)
{
	if (!make_sets(nb)) {
		fail_model(nb, ERR_NOMEM, "no memory for the sets of its blocks");
		return;
	}
	nb->state = NB_READY;
	block_server_set_model(nb->server, nb->manifest);
	if (nb->p.cache == NULL) {
		block_set_add_range(&nb->present, 0, nb->present.n);
		nb_introduce(nb);
		return;
	}
	nb_fetch_init(nb);
	log_line(nb->p.log, LOG_INFO, "the cluster's model is %s (%" PRIu64 " MiB); its blocks are kept in %s", nb->manifest->name, nb->manifest->file_bytes >> 20,
		nb->p.cache->path);
	nb_introduce(nb);
	node_blocks_load(nb, &(struct layer_spans){0}, NULL, false, on_header, nb);
}

static void on_opened(struct block_job *job)
{
	struct node_blocks *nb = of_job(job);
	nb->is_job_busy = false;
	if (nb->is_closing)
		return;
	free(nb->parts);
	nb->parts = NULL;
	if (nb->job_err == ERR_NOT_FOUND || nb->job_err == ERR_FORMAT) { // not in the cache, or damaged there: the coordinator has it
		struct block_frame f = {.type = BLOCK_FRAME_MANIFEST_GET};
		nb->state = NB_MANIFEST;
		nb->parts_have = nb->parts_len = 0;
		nb_tell_coordinator(nb, &f, NULL, 0);
		return;
	}
	if (nb->job_err != OK) {
		fail_model(nb, nb->job_err, nb->job_em.text);
		return;
	}
	nb->manifest = block_store_manifest(nb->store);
	begin_ready(nb);
}

static void run_find(struct block_job *job, struct block_zip *zip)
{
	struct node_blocks *nb = of_job(job);
	(void)zip;
	nb->job_err = block_store_find(nb->p.cache, nb->manifest_hash, &nb->store, &nb->job_em);
}

static void run_open(struct block_job *job, struct block_zip *zip)
{
	struct node_blocks *nb = of_job(job);
	(void)zip;
	nb->job_err = block_store_open(nb->p.cache, nb->parts, nb->parts_len, &nb->store, &nb->job_em);
	if (nb->job_err == ERR_FORMAT)
		nb->job_err = ERR_IO; // its hash was compared: asking again would change nothing
}

void nb_on_greeting(struct node_blocks *nb, const uint8_t hash[BLOCK_HASH_BYTES])
{
	if (nb->manifest != NULL || nb->is_job_busy) {
		if (nb->manifest != NULL && memcmp(hash, nb->manifest->hash, BLOCK_HASH_BYTES) != 0)
			log_line(nb->p.log, LOG_WARNING, "the coordinator serves another model now");
		return;
	}
	memcpy(nb->manifest_hash, hash, BLOCK_HASH_BYTES);
	nb->state = NB_OPENING;
	if (nb->p.cache != NULL) {
		job_start(nb, run_find, on_opened);
		return;
	}
	struct block_frame f = {.type = BLOCK_FRAME_MANIFEST_GET};
	nb->state = NB_MANIFEST;
	nb->parts_have = nb->parts_len = 0;
	nb_tell_coordinator(nb, &f, NULL, 0);
}

// use_own: the model file here is to be what the manifest describes.
static void use_own(struct node_blocks *nb)
{
	struct errmsg em;
	nb->own_manifest = nb->parts;
	nb->parts = NULL;
	if (manifest_parse(nb->own_manifest, nb->parts_len, &nb->own, &em) != OK) {
		fail_model(nb, ERR_FORMAT, em.text);
	} else if (memcmp(nb->own.model_hash, nb->p.model_hash, HASH_BYTES) != 0) {
		nb->state = NB_FAILED; // the coordinator refuses this machine, and says why
	} else {
		nb->manifest = &nb->own;
		begin_ready(nb);
	}
}

static void on_manifest(struct node_blocks *nb)
{
	uint8_t hash[BLOCK_HASH_BYTES];
	crypto_generichash(hash, sizeof hash, nb->parts, nb->parts_len, NULL, 0);
	if (memcmp(hash, nb->manifest_hash, sizeof hash) != 0) {
		fail_model(nb, ERR_FORMAT, "the coordinator's description of the model does not match its hash");
		return;
	}
	nb->state = NB_OPENING;
	if (nb->p.cache != NULL)
		job_start(nb, run_open, on_opened);
	else
		use_own(nb);
}

// grow makes room for the next part. Memory follows what has come, not what was announced.
static bool grow(struct node_blocks *nb, size_t len)
{
	uint8_t *more = realloc(nb->parts, nb->parts_have + len);
	nb->parts = more != NULL ? more : nb->parts;
	return more != NULL;
}

void nb_on_part(struct node_blocks *nb, const struct block_frame *f)
{
	if (nb->state != NB_MANIFEST || f->u.part.state != BLOCK_PART_OK || f->u.part.offset != nb->parts_have)
		return;
	if (nb->parts_have == 0)
		nb->parts_len = f->u.part.total;
	if (f->u.part.total != nb->parts_len || !grow(nb, f->u.part.len)) {
		fail_model(nb, ERR_FORMAT, "the coordinator's description of the model is not whole, or there is no memory for it");
		return;
	}
	memcpy(nb->parts + nb->parts_have, f->u.part.data, f->u.part.len);
	nb->parts_have += f->u.part.len;
	if (nb->parts_have == nb->parts_len) {
		on_manifest(nb);
		return;
	}
	struct block_frame get = {.type = BLOCK_FRAME_MANIFEST_GET, .u.manifest_offset = (uint32_t)nb->parts_have};
	nb_tell_coordinator(nb, &get, NULL, 0);
}

// ---- loading: look, verify, make room, fetch

static void tell_idle(struct node_blocks *nb, bool failed)
{
	struct block_frame f = {.type = BLOCK_FRAME_PROGRESS};
	f.u.progress = (struct block_progress){.state = failed ? BLOCK_PROGRESS_FAILED : BLOCK_PROGRESS_IDLE, .bytes_total = nb->load_bytes,
		.bytes_done = failed ? 0 : nb->load_bytes, .left_ms = UINT32_MAX, .bytes_fetched = nb->bytes_fetched};
	nb_tell_coordinator(nb, &f, NULL, 0);
}

static void end_load(struct node_blocks *nb, enum err err, const char *text)
{
	void (*done)(void *, enum err, const char *) = nb->done;
	nb->phase = NB_IDLE;
	nb->done = NULL;
	nb_peers_consider(nb); // leaves them all
	if (nb->has_news)
		nb_tell_have(nb);
	tell_idle(nb, err != OK && err != ERR_CANCELLED);
	done(nb->done_ctx, err, text);
}

// is_over ends a load that was stopped, or whose job failed.
static bool is_over(struct node_blocks *nb)
{
	nb->is_job_busy = false;
	if (nb->is_closing)
		return true;
	if (nb->is_stopped)
		end_load(nb, ERR_CANCELLED, "another plan came");
	else if (nb->job_err != OK)
		end_load(nb, nb->job_err, nb->job_em.text);
	else
		return false;
	return true;
}

static void log_load(struct node_blocks *nb)
{
	int64_t ns = loop_clock_ns() - nb->begin_ns;
	uint64_t fetched = nb->load_bytes - nb->here_bytes;
	char sources[256] = "";
	nb_describe_sources(nb, sources, sizeof sources);
	if (!nb->has_header && fetched == 0)
		return;
	if (fetched == 0)
		log_line(nb->p.log, LOG_INFO, "every block was here already (%" PRIu64 " MiB): nothing was fetched", nb->load_bytes >> 20);
	else
		log_line(nb->p.log, LOG_INFO, "fetched %.1f MiB in %.1f s (%.1f MiB/s%s); %.1f MiB were here already", (double)fetched / (1 << 20), (double)ns / SECOND,
			(double)fetched / (1 << 20) * SECOND / (double)(ns > 0 ? ns : 1), sources, (double)nb->here_bytes / (1 << 20));
}

static struct node_blocks *of_sync(struct block_job *job)
{
	return (struct node_blocks *)((char *)job - offsetof(struct node_blocks, sync_job));
}

static void on_synced(struct block_job *job)
{
	of_sync(job)->is_sync_busy = false;
}

static void run_sync(struct block_job *job, struct block_zip *zip)
{
	struct node_blocks *nb = of_sync(job);
	struct errmsg em;
	(void)zip;
	if (block_store_sync(nb->store, &em) != OK)
		log_line(nb->p.log, LOG_WARNING, "%s: what was fetched may have to be fetched again after a power cut", em.text);
}

// begin_sync: nobody waits for it. Without it a power cut costs what was fetched, and nothing else.
static void begin_sync(struct node_blocks *nb)
{
	if (nb->is_sync_busy)
		return;
	nb->is_sync_busy = true;
	nb->sync_job = (struct block_job){.run = run_sync, .done = on_synced};
	block_io_submit(nb->io, &nb->sync_job);
}

void nb_on_fetched(struct node_blocks *nb, enum err err, uint32_t block)
{
	struct errmsg em = nb->check_em;
	ASSERT(nb->phase == NB_FETCHING);
	if (err == OK) {
		log_load(nb);
		begin_sync(nb);
		if (nb->is_stopped)
			end_load(nb, ERR_CANCELLED, "another plan came");
		else
			end_load(nb, OK, "");
		return;
	}
	if (err == ERR_FORMAT && em.text[0] == '\0')
		errmsg_fail(&em, err, "block %" PRIu32 " of %s (at byte %" PRIu64 ") is wrong wherever it comes from: is the coordinator's file damaged?", block,
			nb->manifest->name, (uint64_t)block * nb->manifest->block_bytes);
	end_load(nb, err, em.text);
}

static void on_room(struct block_job *job)
{
	struct node_blocks *nb = of_job(job);
	if (is_over(nb))
		return;
	// What was dropped to make room is not here any more.
	for (size_t i = 0; i < block_set_words(nb->present.n); i++)
		nb->verified.words[i] &= nb->job_out.words[i];
	block_set_copy(&nb->present, &nb->job_out);
	nb->has_news = true;
	nb->phase = NB_FETCHING;
	nb_fetch_start(nb, &nb->job_in);
}

static void run_room(struct block_job *job, struct block_zip *zip)
{
	struct node_blocks *nb = of_job(job);
	(void)zip;
	nb->job_err = block_store_make_room(nb->store, &nb->job_keep, nb->job_bytes, &nb->job_em);
	block_set_clear(&nb->job_out);
	if (nb->job_err == OK)
		nb->job_err = block_store_present(nb->store, &nb->job_out, &nb->job_em);
}

static void make_room(struct node_blocks *nb)
{
	for (size_t i = 0; i < block_set_words(nb->wanted.n); i++)
		nb->job_in.words[i] = nb->wanted.words[i] & ~nb->verified.words[i];
	nb->job_bytes = manifest_set_bytes(nb->manifest, &nb->job_in);
	nb->here_bytes = nb->load_bytes - nb->job_bytes;
	if (nb->job_bytes == 0) {
		log_load(nb);
		end_load(nb, OK, "");
		return;
	}
	nb->phase = NB_MAKING_ROOM;
	block_set_copy(&nb->job_keep, &nb->wanted);
	block_set_join(&nb->job_keep, &nb->in_use);
	job_start(nb, run_room, on_room);
}

// run_verify moves the good blocks of job_in to job_out, a slice of them.
static void run_verify(struct block_job *job, struct block_zip *zip)
{
	struct node_blocks *nb = of_job(job);
	struct errmsg em;
	(void)zip;
	uint32_t block = block_set_next(&nb->job_in, 0);
	for (int i = 0; i < SLICE_BLOCKS && block < nb->job_in.n; i++) {
		enum err e = block_store_read(nb->store, block, nb->job_buf, &em);
		if (e == OK)
			block_set_add(&nb->job_out, block);
		else if (e != ERR_NOT_FOUND)
			log_line(nb->p.log, LOG_WARNING, "%s: it is fetched again", em.text);
		block_set_remove(&nb->job_in, block);
		block = block_set_next(&nb->job_in, block + 1);
	}
}

static void on_verified(struct block_job *job)
{
	struct node_blocks *nb = of_job(job);
	if (is_over(nb))
		return;
	if (block_set_next(&nb->job_in, 0) < nb->job_in.n) {
		verify_next(nb);
		return;
	}
	block_set_join(&nb->verified, &nb->job_out);
	make_room(nb);
}

static void verify_next(struct node_blocks *nb)
{
	job_start(nb, run_verify, on_verified);
}

static void on_looked(struct block_job *job)
{
	struct node_blocks *nb = of_job(job);
	if (is_over(nb))
		return;
	block_set_copy(&nb->present, &nb->job_out);
	nb->has_news = true;
	for (size_t i = 0; i < block_set_words(nb->wanted.n); i++)
		nb->job_in.words[i] = nb->wanted.words[i] & nb->present.words[i] & ~nb->verified.words[i];
	block_set_clear(&nb->job_out);
	nb->phase = NB_VERIFYING;
	verify_next(nb);
}

static void run_look(struct block_job *job, struct block_zip *zip)
{
	struct node_blocks *nb = of_job(job);
	(void)zip;
	block_set_clear(&nb->job_out);
	nb->job_err = block_store_present(nb->store, &nb->job_out, &nb->job_em);
}

// want_ranges: the file whose header they were made from has the manifest's length.
static void want_ranges(struct node_blocks *nb, const struct weight_ranges *r)
{
	for (size_t i = 0; i < r->n; i++)
		manifest_add_extent(nb->manifest, r->at[i].at, r->at[i].bytes, &nb->wanted);
}

void node_blocks_load(struct node_blocks *nb, const struct layer_spans *layers, const struct weight_ranges *ranges, bool beside,
	void (*done)(void *ctx, enum err err, const char *text), void *ctx)
{
	ASSERT(nb->p.cache != NULL && nb->state == NB_READY && nb->phase == NB_IDLE);
	block_set_clear(&nb->wanted);
	manifest_add_header(nb->manifest, &nb->wanted);
	if (ranges != NULL)
		want_ranges(nb, ranges);
	for (int32_t i = 0; ranges == NULL && i < layers->n; i++)
		manifest_add_layers(nb->manifest, layers->at[i].begin, layers->at[i].end, &nb->wanted);
	if (!beside)
		block_set_copy(&nb->in_use, &nb->wanted);
	nb->load_bytes = manifest_set_bytes(nb->manifest, &nb->wanted);
	nb->here_bytes = 0;
	nb->begin_ns = loop_clock_ns();
	nb->done = done;
	nb->done_ctx = ctx;
	nb->is_stopped = false;
	nb->phase = NB_LOOKING;
	job_start(nb, run_look, on_looked);
}

void node_blocks_stop_load(struct node_blocks *nb)
{
	if (nb->phase == NB_IDLE || nb->is_stopped)
		return;
	nb->is_stopped = true;
	if (nb->phase != NB_FETCHING)
		return; // its job's end
	nb_fetch_stop(nb);
	loop_timer_set(nb->p.loop, &nb->timer, loop_clock_ns()); // a tick ends it: a plan waits for that
}

uint64_t node_blocks_fetched(const struct node_blocks *nb)
{
	return nb->bytes_fetched;
}

// ---- serving

static enum err read_block(void *ctx, uint32_t block, uint8_t *buf, struct errmsg *em)
{
	struct node_blocks *nb = ctx;
	if (nb->store != NULL)
		return block_store_read(nb->store, block, buf, em);
	return block_file_read(nb->file_fd, nb->p.model_path, nb->manifest, block, buf, em);
}

void node_blocks_take(struct node_blocks *nb, struct link *link, const struct link_info *info)
{
	block_server_take(nb->server, link, info);
}

bool node_blocks_find_psk(const struct node_blocks *nb, const uint8_t public_key[KEY_BYTES], uint8_t psk[KEY_BYTES])
{
	for (size_t i = 0; i < BLOCK_FRAME_PEERS_MAX; i++) {
		const struct msg_peer *who = &nb->peers[i].who;
		if (who->present && memcmp(who->public_key, public_key, KEY_BYTES) == 0) {
			memcpy(psk, who->psk, KEY_BYTES);
			return true;
		}
	}
	return false;
}

void node_blocks_set_epoch(struct node_blocks *nb, struct member_epoch e)
{
	if (e.v <= nb->p.member_epoch.v)
		return;
	nb->p.member_epoch = e;
	nb_peers_forget_all(nb);
	dialer_renew(nb->coordinator); // a new handshake, over which it names those who still are members
}

void node_blocks_note_work(struct node_blocks *nb)
{
	block_server_note_work(nb->server);
}

// ---- time, opening

static void on_tick(void *ctx)
{
	struct node_blocks *nb = ctx;
	int64_t now_ns = loop_clock_ns();
	if (nb->phase == NB_FETCHING && nb->is_stopped)
		end_load(nb, ERR_CANCELLED, "another plan came");
	if (nb->state == NB_READY) {
		nb_fetch_tick(nb, now_ns);
		nb_peers_consider(nb);
	}
	nb_peers_tick(nb, now_ns);
	loop_timer_set(nb->p.loop, &nb->timer, now_ns + TICK_NS);
}

const char *node_blocks_model_path(const struct node_blocks *nb)
{
	return nb->store != NULL ? block_store_path(nb->store) : nb->p.model_path;
}

const uint8_t *node_blocks_model_hash(const struct node_blocks *nb)
{
	return nb->manifest != NULL ? nb->manifest->model_hash : nb->p.model_hash;
}

static enum err open_parts(struct node_blocks *nb, struct errmsg *em)
{
	struct block_server_params s = {.loop = nb->p.loop, .log = nb->p.log, .limits = upload_limits_default, .ctx = nb, .read = read_block};
	s.limits.rate_max = nb->p.upload_max;
	if (nb->p.cache == NULL) {
		nb->file_fd = open(nb->p.model_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (nb->file_fd < 0)
			return errmsg_fail(em, ERR_IO, "%s: cannot open: %s", nb->p.model_path, strerror(errno));
	}
	enum err e = block_io_open(nb->p.loop, NB_THREADS, &nb->io, em);
	s.io = nb->io;
	if (e == OK)
		e = block_server_open(&s, &nb->server, em);
	return e == OK ? nb_peers_open(nb, em) : e;
}

enum err node_blocks_open(const struct node_blocks_params *p, struct node_blocks **out, struct errmsg *em)
{
	struct node_blocks *nb = calloc(1, sizeof *nb);
	*out = NULL;
	if (nb == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the model's blocks");
	nb->p = *p;
	nb->file_fd = -1;
	loop_timer_init(&nb->timer, on_tick, nb);
	enum err e = open_parts(nb, em);
	if (e != OK) {
		node_blocks_close(nb);
		return e;
	}
	loop_timer_set(p->loop, &nb->timer, loop_clock_ns() + TICK_NS);
	*out = nb;
	return OK;
}

static bool jobs_are_done(void *ctx)
{
	struct node_blocks *nb = ctx;
	return !nb->is_job_busy && !nb->is_sync_busy && nb->n_checks == 0;
}

void node_blocks_close(struct node_blocks *nb)
{
	if (nb == NULL)
		return;
	nb->is_closing = true;
	nb_peers_close(nb);
	loop_timer_clear(nb->p.loop, &nb->timer);
	loop_finish(nb->p.loop, jobs_are_done, nb);
	block_server_close(nb->server);
	block_io_close(nb->io);
	block_store_close(nb->store);
	if (nb->file_fd >= 0)
		close(nb->file_fd);
	free(nb->own_manifest);
	free(nb->parts);
	free(nb->words);
	free(nb->fetch_words);
	free(nb->job_buf);
	sodium_memzero(nb, sizeof *nb);
	free(nb);
}
