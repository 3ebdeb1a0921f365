#include "cli/cluster_host.h"

#include "base/window_layout.h"
#include "base/wire_type.h"
#include "cli/share_words.h"

#include <stdlib.h>
#include <string.h>

#define CTX_DEFAULT 4096

static void on_signal(void *ctx, int signo)
{
	struct cluster_host *h = ctx;
	h->signo = signo;
	loop_stop(&h->loop);
}

enum err cluster_host_open_model(struct cluster_host *h, const struct options *o, const struct log *log, struct errmsg *em)
{
	int64_t begin_ns = loop_clock_ns();
	memset(h, 0, sizeof *h);
	h->log = log;
	enum err e = loop_open(&h->loop, em);
	if (e == OK)
		e = loop_signals(&h->loop, on_signal, h, em);
	if (e == OK)
		e = model_open(o->model, &h->model, em);
	if (e == OK)
		e = tokenizer_open(model_gguf(h->model), &h->tokenizer, em);
	if (e == OK)
		e = worker_open(options_n_threads(o), o->simd, &h->worker, em);
	if (e == OK)
		worker_slow_down(h->worker, o->slowdown);
	h->load_ns = loop_clock_ns() - begin_ns;
	return e;
}

static int32_t choose_ctx(const struct options *o, const struct hparams *hp)
{
	if (o->ctx > 0)
		return o->ctx;
	return hp->ctx_len_train < CTX_DEFAULT ? hp->ctx_len_train : CTX_DEFAULT;
}

// choose_chunk returns the tokens of one step: a wide model's may not fit a record.
static int32_t choose_chunk(const struct options *o, const struct hparams *hp)
{
	size_t fits = (DATA_RECORD_MAX - FRAME_STEP_BYTES) / wire_bytes(o->wire, hp->hidden_dim);
	int32_t chunk = o->prefill_chunk < CHUNK_TOKENS_MAX ? o->prefill_chunk : CHUNK_TOKENS_MAX;
	return (size_t)chunk < fits ? chunk : (int32_t)fits;
}

static void fill_stop_ids(const struct tokenizer *t, struct coordinator_config *c)
{
	for (int32_t id = 0; id < tokenizer_vocab_size(t) && c->n_stop_ids < STOP_IDS_MAX; id++)
		if (tokenizer_is_stop(t, id))
			c->stop_ids[c->n_stop_ids++] = id;
}

// check_split refuses at the start what would otherwise be refused when the last machine is there.
static enum err check_split(const struct options *o, const struct model *m, struct errmsg *em)
{
	int64_t sum = 0;
	for (int32_t i = 0; i < o->split.n; i++)
		sum += o->split.at[i];
	if (o->split.n == 0 || sum == model_hparams(m)->n_layers)
		return OK;
	return errmsg_fail(em, ERR_RANGE, "--split gives out %lld layers, %s has %d", (long long)sum, o->model, model_hparams(m)->n_layers);
}

// fill_streams: what one says of stages that a plan chooses is not known to fit them.
static enum err fill_streams(struct cluster_host *h, const struct options *o, struct coordinator_config *c, struct errmsg *em)
{
	int32_t n = o->place != NULL ? h->placement->n_stages : o->split.n;
	if (o->streams.n == 0)
		return OK;
	if (n == 0)
		return errmsg_fail(em, ERR_RANGE, "--streams is about the stages of --split or --place: give one of them too, or leave it to the plan");
	if (o->streams.n != n)
		return errmsg_fail(em, ERR_RANGE, "--streams has %d percentages, %s has %d stages", o->streams.n, o->place != NULL ? "--place" : "--split", n);
	for (int32_t i = 0; i < n; i++) {
		bool is_group = o->place != NULL && h->placement->stages[i].n_members > 1;
		if (is_group && o->streams.at[i] > 0)
			return errmsg_fail(em, ERR_RANGE, "--streams: stage %d is shared by %d machines, and each of them reads as little as must be: say 0 there", i,
				h->placement->stages[i].n_members);
		uint32_t share = window_share_of(o->streams.at[i], 100);
		if (o->place != NULL)
			h->placement->stages[i].stream_share = share;
		else
			c->split_streams[i] = share;
	}
	return OK;
}

static enum err check_payload(const struct options *o, struct errmsg *em)
{
	if (!split_is_payload((enum wire_type)o->tp_payload))
		return errmsg_fail(em, ERR_RANGE, "--tp-payload: %s cannot hold every sum (want f32, bf16 or q8)", wire_type_name((enum wire_type)o->tp_payload));
	if (o->tp_payload != WIRE_F32 && !split_has_lanes((enum split_mode)o->tp_mode))
		return errmsg_fail(em, ERR_RANGE, "--tp-payload: with --tp-mode gather no sums travel, and nothing is rounded");
	return OK;
}

// check_mode refuses at the start what every member would refuse again and again. Whose shares they are does not matter.
static enum err check_mode(const struct cluster_host *h, const struct options *o, struct errmsg *em)
{
	struct split_shape shape = engine_split_shape(h->model);
	struct tensor_split one;
	enum err e = tensor_split_make(&shape, (enum split_mode)o->tp_mode, &(uint32_t){1}, 1, &one, em);
	return e == OK ? OK : errmsg_prefix(em, e, "--tp-mode");
}

// check_head refuses what cannot have lm_head on the last stage.
static enum err check_head(const struct options *o, const struct coordinator_config *c, struct errmsg *em)
{
	if (!c->has_output)
		return OK;
	if (o->rounds > 1)
		return errmsg_fail(em, ERR_RANGE, "--head last needs a last stage with layers in every trip: leave out --rounds");
	if (head_reply_bytes_max(c->vocab_size) > DATA_RECORD_MAX - FRAME_STEP_BYTES)
		return errmsg_fail(em, ERR_UNSUPPORTED, "--head last: logits of %d tokens do not fit a frame of %d bytes", c->vocab_size, DATA_RECORD_MAX);
	return OK;
}

// fill_placement: whoever is named is waited for, unless --nodes says how many.
static enum err fill_placement(struct cluster_host *h, const struct options *o, struct coordinator_config *c, struct errmsg *em)
{
	if (o->place == NULL)
		return OK;
	if (o->split.n > 0 || o->replicas > 1 || o->rounds > 1)
		return errmsg_fail(em, ERR_RANGE, "--place says who holds which layers, and how often: leave out %s",
			o->split.n > 0 ? "--split" : o->replicas > 1 ? "--replicas" : "--rounds");
	enum err e = placement_words_parse(o->place, c->n_layers, &h->placement, em);
	if (e != OK)
		return e;
	c->group_mode = (enum split_mode)o->tp_mode;
	c->group_payload = (enum wire_type)o->tp_payload;
	e = check_payload(o, em);
	if (e != OK)
		return e;
	if (h->placement->n_members > h->placement->n_stages && (e = check_mode(h, o, em)) != OK)
		return e;
	const char *hub = placement_words_hub(h->placement);
	if (hub != NULL && split_has_lanes(c->group_mode))
		return errmsg_fail(em, ERR_RANGE, "--place: %s* passes on what is gathered: with --tp-mode %s each member is sent something else (leave out the star)", hub,
			tp_mode_word(c->group_mode));
	bool is_here = c->has_local_node && placement_words_find(h->placement, c->local_name) > 0;
	c->n_chains = h->placement->n_chains;
	c->placement = h->placement->chains;
	c->limits.nodes_max = SWARM_NODES_MAX; // with those who stand by
	c->n_nodes_min = o->nodes > 0 ? o->nodes : h->placement->n_members - is_here;
	return OK;
}

static enum err fill_tp(struct cluster_host *h, const struct options *o, struct errmsg *em)
{
	uint32_t shares[GROUP_MEMBERS_MAX];
	int32_t n;
	if (o->tp == NULL)
		return OK;
	struct split_shape shape = engine_split_shape(h->model);
	enum err e = share_words_parse("--tp", o->tp, shares, &n, em);
	if (e == OK)
		e = check_mode(h, o, em);
	if (e == OK)
		e = tensor_split_make(&shape, (enum split_mode)o->tp_mode, shares, n, &h->tp, em);
	h->tp.payload = (enum wire_type)o->tp_payload;
	return e == OK ? check_payload(o, em) : e;
}

static enum err fill_core(struct cluster_host *h, const struct options *o, int32_t n_slots, const struct cluster_host_serve *serve,
	struct coordinator_config *c, struct errmsg *em)
{
	const struct hparams *hp = model_hparams(h->model);
	*c = (struct coordinator_config){
		.n_layers = hp->n_layers,
		.hidden_dim = hp->hidden_dim,
		.vocab_size = hp->vocab_size,
		.wire = o->wire,
		.has_output = o->head == HEAD_LAST,
		.n_slots = n_slots,
		.ctx_len = choose_ctx(o, hp),
		.chunk_max = choose_chunk(o, hp),
		.hop_credits = HOP_CREDITS_DEFAULT,
		.n_rounds = o->rounds,
		.n_split = o->split.n,
		.may_group = !o->no_groups,
		.by_cost = o->plan == PLAN_BY_COST && serve->listen != NULL,
		.n_chains = o->replicas,
		.limits.nodes_max = o->replicas > 1 ? SWARM_NODES_MAX : 0,
		.n_nodes_min = o->nodes,
		.has_local_node = !o->no_node,
		.liveness = liveness_with(o->dead_after * INT64_C(1000000)),
		.session_wait_ns = o->session_wait * INT64_C(1000000000),
		.addresses = serve->addresses,
	};
	memcpy(c->split, o->split.at, sizeof c->split);
	text_copy(c->local_name, sizeof c->local_name, serve->name ? serve->name : "here");
	fill_stop_ids(h->tokenizer, c);
	if (o->replicas == 1 && o->place == NULL && o->nodes > NODES_MAX)
		return errmsg_fail(em, ERR_LIMIT, "--nodes %d: one chain takes at most %d machines; more need --replicas", o->nodes, NODES_MAX);
	enum err e = check_split(o, h->model, em);
	if (e == OK)
		e = check_head(o, c, em);
	if (e == OK)
		e = fill_placement(h, o, c, em);
	if (e == OK)
		e = fill_streams(h, o, c, em);
	if (e != OK)
		return e;
	if (c->chunk_max < 1)
		return errmsg_fail(em, ERR_UNSUPPORTED, "hidden_dim %d: one hidden state does not fit a frame of %d bytes", hp->hidden_dim, DATA_RECORD_MAX);
	return OK;
}

static uint64_t layer_kv_bytes(const struct model *m, const struct coordinator_config *c)
{
	const struct hparams *hp = model_hparams(m);
	uint64_t row = 2 * (uint64_t)hp->n_kv_heads * (uint64_t)hp->head_dim * sizeof(uint16_t);
	return row * (uint64_t)c->ctx_len * (uint64_t)c->n_slots;
}

static enum err open_node(struct cluster_host *h, const struct options *o, const struct coordinator_config *c, const struct cluster_host_serve *serve,
	struct errmsg *em)
{
	struct node_runtime_params p = {
		.loop = &h->loop,
		.log = h->log,
		.worker = h->worker,
		.model = h->model,
		.local_control = h->local_control,
		.local_data = h->local_data,
		.core = {.n_layers = c->n_layers, .hidden_dim = c->hidden_dim, .vocab_size = c->vocab_size, .n_threads = (uint32_t)options_n_threads(o), .local = true,
			.liveness = liveness_defaults, .link_age_ns = LINK_AGE_NS, .keep_bytes = h->budget.keep_bytes,
			.keep_disk_bytes = o->keep_disk},
		.memory = h->budget.node,
		.split = h->tp.n_members > 0 ? &h->tp : NULL,
		.keep_dir = o->keep_dir ? o->keep_dir : serve->state_dir,
	};
	if (serve->keys)
		lnk1_node_id(serve->keys->pk, p.core.self.b);
	p.core.coordinator = p.core.self;
	memcpy(p.core.model_hash, c->model_hash, HASH_BYTES);
	text_copy(p.core.name, sizeof p.core.name, c->local_name);
	text_copy(p.core.simd, sizeof p.core.simd, kernels_name(worker_kernels(h->worker)));
	if (serve->keys != NULL)
		host_profile_offer(&h->profile, o, &p);
	return node_runtime_open(&p, &h->node, em);
}

// offer_profile: the coordinator plans for its own machine, too, where no node beside it tells what that can do.
static enum err offer_profile(struct cluster_host *h, const struct options *o, struct coord_runtime_params *p, struct errmsg *em)
{
	int64_t when_s;
	enum err e = host_profile_init(o, h->model, true, h->worker, &h->profile, em);
	if (e != OK)
		return e;
	h->profile.log = h->log;
	host_profile_set_memory(&h->profile, o, &h->budget.node, h->budget.keep_bytes);
	if (o->no_node && host_profile_load(&h->profile, &h->profile.known, &when_s) == OK)
		p->profile = &h->profile.known;
	return OK;
}

enum err cluster_host_open_cluster(struct cluster_host *h, const struct options *o, int32_t n_slots, const struct cluster_host_serve *serve,
	struct errmsg *em)
{
	int64_t begin_ns = loop_clock_ns();
	struct coord_runtime_params p = {
		.loop = &h->loop,
		.log = h->log,
		.worker = h->worker,
		.model = h->model,
		.keys = serve->keys,
		.store_path = serve->store_path,
		.listen = serve->listen,
		.known_dir = serve->known_dir,
		.upload_max = serve->upload_max,
		.limits = &link_limits_default,
	};
	enum err e = fill_core(h, o, n_slots, serve, &p.core, em);
	if (e == OK)
		e = fill_tp(h, o, em);
	const struct host_budget_ask ask = {.options = o, .model = h->model, .worker = h->worker, .is_alone = serve->keys == NULL, .log = h->log,
		.split = h->tp.n_members > 0 ? &h->tp : NULL};
	if (e == OK)
		e = host_budget_coordinator(&ask, &p.core, &h->budget, em);
	p.core.layer_kv_bytes = layer_kv_bytes(h->model, &p.core); // of the context that was chosen
	if (e == OK && serve->keys != NULL)
		e = offer_profile(h, o, &p, em);
	p.head_weights = h->budget.head;
	if (e == OK && !o->no_node)
		e = local_link_open(&h->loop, LNK1_CONTROL, &link_limits_default, &h->local_control, em);
	if (e == OK && !o->no_node)
		e = local_link_open(&h->loop, LNK1_DATA, &link_limits_default, &h->local_data, em);
	p.local_control = h->local_control;
	p.local_data = h->local_data;
	if (e == OK)
		e = host_port_explain(coord_runtime_open(&p, &h->coord, em), "--listen", em);
	if (e == OK && !o->no_node)
		e = open_node(h, o, &p.core, serve, em);
	h->load_ns += loop_clock_ns() - begin_ns;
	return e;
}

void cluster_host_close_cluster(struct cluster_host *h)
{
	coord_runtime_close(h->coord);
	node_runtime_close(h->node);
	h->coord = NULL;
	h->node = NULL;
}

void cluster_host_close(struct cluster_host *h)
{
	if (h->loop.wake_fd == 0)
		return; // zeroed: never opened
	cluster_host_close_cluster(h);
	local_link_close(h->local_control);
	local_link_close(h->local_data);
	worker_close(h->worker);
	tokenizer_close(h->tokenizer);
	model_close(h->model);
	free(h->placement);
	loop_close(&h->loop);
	memset(h, 0, sizeof *h);
}
