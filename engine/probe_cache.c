#include "engine/probe_cache.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/durable_file.h"
#include "base/private_dir.h"
#include "engine/probe_machine.h"
#include "engine/probe_stage.h"
#include "kernels/canonical.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "HPROBE"
#define MAGIC_BYTES 6
#define FORMAT_VERSION 1
#define PATH_CAP 1024
#define FNV_BASE UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

static uint64_t mix(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;
	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * FNV_PRIME;
	return h;
}

// shape_of is a number for a model's shape: what a visit takes follows from widths and weight types, whatever the weights are.
static uint64_t shape_of(const struct model *m)
{
	const struct hparams *hp = model_hparams(m);
	const int32_t widths[] = {hp->n_layers, hp->hidden_dim, hp->ffn_dim, hp->n_heads, hp->n_kv_heads, hp->head_dim, hp->n_experts, hp->n_experts_used,
		hp->vocab_size};
	uint64_t bytes[DTYPE_ID_MAX + 1] = {0}, h = mix(FNV_BASE, widths, sizeof widths);
	for (int32_t i = 0; i < hp->n_layers; i++)
		(void)probe_stage_layer_bytes(m, i, bytes);
	bytes[model_output(m).type]++;
	return mix(h, bytes, sizeof bytes);
}

// disk_of is the number of the file system that would be read; 0: none is.
static uint64_t disk_of(const struct probe_config *c)
{
	struct stat st;
	const char *path = c->has_weights ? model_path(c->model) : c->folder;
	return path != NULL && stat(path, &st) == 0 ? (uint64_t)st.st_dev : 0;
}

void probe_cache_key(const struct probe_config *c, const char *version, char key[PROBE_KEY_CAP])
{
	struct probe_machine f;
	probe_machine_read(c->root != NULL ? c->root : "", &f);
	snprintf(key, PROBE_KEY_CAP, "hearth %s canon %d system %s cpu %s caches %" PRIu64 " kernels %s threads %d model %016" PRIx64 "%s disk %" PRIx64 " within %" PRIu64,
		version, CANON_VERSION, f.system, f.cpu, f.cache_bytes, kernels_name(c->kernels), (int)pool_n_threads(c->pool),
		c->model != NULL ? shape_of(c->model) : 0, c->has_weights ? "+" : "", disk_of(c), c->bytes_max >> 26);
}

// ---- bytes

static void put_text(struct writer *w, const char *text)
{
	writer_u16(w, (uint16_t)strlen(text));
	writer_bytes(w, text, strlen(text));
}

// get_text: printable ASCII, which is all that was written.
static bool get_text(struct reader *r, char *out, size_t cap)
{
	size_t len = reader_u16(r);
	const uint8_t *p = len < cap ? reader_take(r, len) : NULL;
	if (p == NULL)
		return false;
	for (size_t i = 0; i < len; i++)
		if (p[i] < ' ' || p[i] > '~')
			return false;
	memcpy(out, p, len);
	out[len] = '\0';
	return true;
}

size_t probe_cache_encode(const char *key, const struct device_profile *p, int64_t when_s, uint8_t out[PROBE_CACHE_BYTES_MAX])
{
	struct writer w = writer_init(out, PROBE_CACHE_BYTES_MAX);
	writer_bytes(&w, MAGIC, MAGIC_BYTES);
	writer_u16(&w, FORMAT_VERSION);
	put_text(&w, key);
	writer_u64(&w, (uint64_t)when_s);
	writer_u32(&w, p->n_threads);
	writer_u32(&w, p->n_threads_best);
	writer_u32(&w, p->n_cpus);
	writer_u64(&w, p->visit_ns);
	writer_u64(&w, p->disk_mmap_bps);
	writer_u64(&w, p->disk_direct_bps);
	put_text(&w, p->cpu);
	writer_u8(&w, (uint8_t)p->n_rates);
	for (int32_t i = 0; i < p->n_rates; i++) {
		writer_u8(&w, (uint8_t)p->rates[i].type);
		writer_u64(&w, p->rates[i].decode_bps);
		writer_u64(&w, p->rates[i].prefill_flops);
	}
	ASSERT(!w.failed);
	return w.len;
}

static bool get_rates(struct reader *r, struct device_profile *p)
{
	uint8_t n = reader_u8(r);
	if (n > PROFILE_RATES_MAX)
		return false;
	for (p->n_rates = 0; p->n_rates < n; p->n_rates++) {
		struct device_rate *rate = &p->rates[p->n_rates];
		rate->type = (enum dtype)reader_u8(r);
		rate->decode_bps = reader_u64(r);
		rate->prefill_flops = reader_u64(r);
	}
	return true;
}

enum err probe_cache_decode(const uint8_t *data, size_t len, char key[PROBE_KEY_CAP], struct device_profile *out, int64_t *when_s)
{
	struct reader r = reader_init(data, len);
	memset(out, 0, sizeof *out);
	const uint8_t *magic = reader_take(&r, MAGIC_BYTES);
	if (magic == NULL || memcmp(magic, MAGIC, MAGIC_BYTES) != 0 || reader_u16(&r) != FORMAT_VERSION || !get_text(&r, key, PROBE_KEY_CAP))
		return ERR_FORMAT;
	uint64_t when = reader_u64(&r);
	out->n_threads = reader_u32(&r);
	out->n_threads_best = reader_u32(&r);
	out->n_cpus = reader_u32(&r);
	out->visit_ns = reader_u64(&r);
	out->disk_mmap_bps = reader_u64(&r);
	out->disk_direct_bps = reader_u64(&r);
	if (!get_text(&r, out->cpu, sizeof out->cpu) || !get_rates(&r, out) || !reader_ok(&r) || r.left != 0)
		return ERR_FORMAT;
	*when_s = when > INT64_MAX ? INT64_MAX : (int64_t)when;
	return out->n_threads > 0 && device_profile_check(out, NULL) == OK ? OK : ERR_FORMAT;
}

// ---- files

static bool path_of(const char *folder, const char *key, char path[PATH_CAP])
{
	unsigned place = (unsigned)(mix(FNV_BASE, key, strlen(key)) % PROBE_CACHE_FILES);
	return (size_t)snprintf(path, PATH_CAP, "%s/probe-%02u", folder, place) < PATH_CAP;
}

enum err probe_cache_load(const char *folder, const char *key, struct device_profile *out, int64_t *when_s)
{
	char path[PATH_CAP], found[PROBE_KEY_CAP];
	uint8_t data[PROBE_CACHE_BYTES_MAX];
	size_t len;
	if (!path_of(folder, key, path) || durable_file_read(path, data, sizeof data, &len, NULL) != OK ||
		probe_cache_decode(data, len, found, out, when_s) != OK || strcmp(found, key) != 0)
		return ERR_NOT_FOUND;
	probe_refresh(NULL, out);
	return OK;
}

enum err probe_cache_save(const char *folder, const char *key, const struct device_profile *p, int64_t when_s, struct errmsg *em)
{
	char path[PATH_CAP];
	uint8_t data[PROBE_CACHE_BYTES_MAX];
	int fd;
	if (!path_of(folder, key, path))
		return errmsg_fail(em, ERR_LIMIT, "%s: the path is too long", folder);
	enum err e = private_dir_open(folder, &fd, em);
	if (e != OK)
		return e;
	close(fd);
	return durable_file_write(path, data, probe_cache_encode(key, p, when_s, data), em);
}
