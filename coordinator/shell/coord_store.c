#include "coordinator/shell/coord_store.h"

#include "base/assert.h"

#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

struct store_done {
	uint32_t id;
	enum err err;
	struct errmsg em;
};

struct coord_store {
	struct sqlite3 *db;
	struct loop *loop;
	coord_store_done done;
	void *ctx;
	struct loop_task task; // runs completions

	pthread_t thread;
	pthread_mutex_t mutex; // guards what follows
	pthread_cond_t wake;
	bool is_stopping;
	struct coord_write queue[COORD_STORE_QUEUE_MAX];
	uint32_t n_queued;
	struct store_done dones[COORD_STORE_DONES_MAX];
	uint32_t n_dones;
};

// ---- the thread

static void add_done(struct coord_store *s, const struct store_done *d)
{
	ASSERT(s->n_dones < ARRAY_LEN(s->dones));
	s->dones[s->n_dones++] = *d;
	loop_task_post(s->loop, &s->task);
}

static void *store_thread(void *ctx)
{
	struct coord_store *s = ctx;
	pthread_mutex_lock(&s->mutex);
	for (;;) {
		while (s->n_queued == 0 && !s->is_stopping)
			pthread_cond_wait(&s->wake, &s->mutex);
		if (s->n_queued == 0)
			break;
		struct coord_write w = s->queue[0];
		memmove(s->queue, s->queue + 1, (size_t)(--s->n_queued) * sizeof s->queue[0]);
		sodium_memzero(&s->queue[s->n_queued], sizeof s->queue[0]);
		pthread_mutex_unlock(&s->mutex);

		struct store_done d = {.id = w.id};
		d.err = coord_db_write(s->db, &w, &d.em);
		sodium_memzero(&w, sizeof w);

		pthread_mutex_lock(&s->mutex);
		add_done(s, &d);
	}
	pthread_mutex_unlock(&s->mutex);
	return NULL;
}

static bool take_done(struct coord_store *s, struct store_done *d)
{
	pthread_mutex_lock(&s->mutex);
	bool has_one = s->n_dones > 0;
	if (has_one) {
		*d = s->dones[0];
		memmove(s->dones, s->dones + 1, (size_t)(--s->n_dones) * sizeof s->dones[0]);
	}
	pthread_mutex_unlock(&s->mutex);
	return has_one;
}

static void on_dones(void *ctx)
{
	struct coord_store *s = ctx;
	struct store_done d;
	while (take_done(s, &d))
		s->done(s->ctx, d.id, d.err, d.em.text);
}

void coord_store_submit(struct coord_store *s, const struct coord_write *w)
{
	pthread_mutex_lock(&s->mutex);
	if (s->n_queued < COORD_STORE_QUEUE_MAX) {
		s->queue[s->n_queued++] = *w;
		pthread_cond_signal(&s->wake);
	} else {
		add_done(s, &(struct store_done){.id = w->id, .err = ERR_BUSY, .em.text = "the disk does not keep up"});
	}
	pthread_mutex_unlock(&s->mutex);
}

// ---- opening

enum err coord_store_open(const char *path, const uint8_t new_cluster_id[CLUSTER_ID_BYTES], struct loop *loop, coord_store_done done, void *ctx,
	struct coord_store **store, struct coord_restored *out, struct errmsg *em)
{
	struct coord_store *s = calloc(1, sizeof *s);
	if (s == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the cluster store");
	s->loop = loop;
	s->done = done;
	s->ctx = ctx;
	loop_task_init(&s->task, on_dones, s);
	enum err e = coord_db_open(path, new_cluster_id, &s->db, out, em);
	if (e != OK)
		goto fail;
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->wake, NULL);
	if (pthread_create(&s->thread, NULL, store_thread, s) != 0) {
		e = errmsg_fail(em, ERR_NOMEM, "cannot start the store's thread");
		pthread_cond_destroy(&s->wake);
		pthread_mutex_destroy(&s->mutex);
		goto fail;
	}
	*store = s;
	return OK;
fail:
	coord_db_close(s->db);
	free(s);
	return e;
}

void coord_store_close(struct coord_store *s)
{
	if (s == NULL)
		return;
	pthread_mutex_lock(&s->mutex);
	s->is_stopping = true;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->mutex);
	pthread_join(s->thread, NULL);
	loop_task_cancel(s->loop, &s->task);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->mutex);
	coord_db_close(s->db);
	sodium_memzero(s, sizeof *s);
	free(s);
}
