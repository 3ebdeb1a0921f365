// `hearth status`: the cluster as its coordinator sees it.
#include "base/layer_spans.h"
#include "cli/admin_command.h"
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

static long long number(const json_t *o, const char *key)
{
	return (long long)json_integer_value(json_object_get(o, key));
}

// next_words says how hidden states leave a stage.
static const char *next_words(const json_t *node)
{
	const char *next = text(node, "next_link");
	if (strcmp(next, "head") == 0)
		return "to the coordinator";
	if (strcmp(next, "direct") == 0)
		return "direct to the next";
	if (strcmp(next, "group") == 0)
		return "to its group";
	return strcmp(next, "relay") == 0 ? "relay through the coordinator" : "";
}

static void layers_words(const json_t *spans, char out[LAYER_SPANS_CAP])
{
	struct layer_spans s = {0};
	for (size_t i = 0; i < json_array_size(spans) && s.n < ROUNDS_MAX; i++) {
		const json_t *span = json_array_get(spans, i);
		s.at[s.n++] = (struct layer_span){(int32_t)json_integer_value(json_array_get(span, 0)), (int32_t)json_integer_value(json_array_get(span, 1))};
	}
	layer_spans_print(&s, out);
}

static void print_node(const json_t *n)
{
	char layers[LAYER_SPANS_CAP + 16] = "-", id[9];
	int len = json_object_get(n, "chain") ? snprintf(layers, 16, "%lld: ", number(n, "chain")) : 0;
	if (json_object_get(n, "stage"))
		layers_words(json_object_get(n, "layers"), layers + len);
	snprintf(id, sizeof id, "%.8s", text(n, "id"));
	bool is_local = json_is_true(json_object_get(n, "local"));
	printf("  %-20s %-8s %-11s %-10s %-9s %3lld %-22s %s%s\n", text(n, "name"), is_local ? "-" : id, text(n, "state"), layers, text(n, "simd"),
		number(n, "threads"), is_local ? "this machine" : text(n, "address"), next_words(n), text(n, "detail"));
}

// print_counts says what is worth a look only when there is something: frames that came late, and what is written to disk.
static void print_counts(const json_t *n)
{
	const char *name = text(n, "name");
	if (number(n, "late") > 0)
		printf("%s: %lld of %lld frames came late for its links\n", name, number(n, "late"), number(n, "heard"));
	if (number(n, "next_late") > 0)
		printf("%s: %lld of %lld frames from the next came late for their link\n", name, number(n, "next_late"), number(n, "next_heard"));
	if (number(n, "kept_disk_written") > 0)
		printf("%s: writes %.0f bytes of kept states per token to disk; %lld written, %lld read back\n", name,
			json_number_value(json_object_get(n, "kept_disk_bytes_per_token")), number(n, "kept_disk_written"), number(n, "kept_disk_read"));
}

static double real(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

// print_weights: of a machine with a memory cap.
static void print_weights(const json_t *n)
{
	const json_t *w = json_object_get(n, "weights");
	if (w == NULL)
		return;
	printf("%s: %.1f MiB of weights pinned%s", text(n, "name"), real(w, "pinned_bytes") / 1048576, json_is_true(json_object_get(w, "locked")) ? " (locked)" : "");
	if (number(w, "streamed_bytes") > 0)
		printf(", %.1f streamed by %s through %.1f; per step %.1f MB at %.0f MB/s, %.1f ms of waiting for the disk", real(w, "streamed_bytes") / 1048576,
			text(w, "reader"), real(w, "window_bytes") / 1048576, real(w, "read_bytes_per_step") / 1e6, real(w, "read_bytes_per_s") / 1e6,
			real(w, "stall_ms_per_step"));
	double holds = real(w, "pinned_bytes") + real(w, "window_bytes"), withheld = real(w, "withheld_bytes");
	if (withheld > 0)
		printf("; gives way to programs that are short of memory: holds %.1f of %.1f MiB", holds / 1048576, (holds + withheld) / 1048576);
	putchar('\n');
}

// print_group: of a machine that shares its layers with others.
static void print_group(const json_t *n)
{
	const json_t *g = json_object_get(n, "group");
	if (g == NULL)
		return;
	printf("%s: %s a group of %lld, with %lld of %lld parts of each layer", text(n, "name"), number(g, "member") == 0 ? "leads" : "is in", number(g, "members"),
		number(g, "share"), number(g, "of"));
	if (number(g, "tokens") > 0)
		printf("; sends the others %.1f KiB a token, and %.1f of headers and encryption", real(g, "sent_bytes_per_token") / 1024,
			(double)number(g, "overhead") / (double)number(g, "tokens") / 1024);
	putchar('\n');
}

// print_plan says what the planner predicts for a cluster, or for one of its chains.
static void print_plan(const json_t *of, const char *name)
{
	const json_t *p = json_object_get(of, "plan");
	if (p == NULL)
		return;
	printf("%s: %.3g ms a token are predicted", name, json_number_value(json_object_get(p, "predicted_ms_per_token")));
	if (number(p, "rounds") > 1)
		printf(", in %lld rounds", number(p, "rounds"));
	printf("%s%s\n", text(p, "left_out")[0] != '\0' ? "; left out: " : "", text(p, "left_out"));
	if (text(p, "groups")[0] != '\0')
		printf("%s: %s\n", name, text(p, "groups"));
}

// print_profile: what a machine can do, as it was measured there.
static void print_profile(const json_t *n)
{
	const json_t *p = json_object_get(n, "profile"), *rate = json_array_get(json_object_get(p, "rates"), 0);
	if (p == NULL)
		return;
	printf("%s: %.1f GiB of memory, %.1f available", text(n, "name"), real(p, "memory_bytes") / 1073741824, real(p, "memory_available_bytes") / 1073741824);
	if (number(p, "memory_cap_bytes") > 0)
		printf(", %.1f for Hearth", real(p, "memory_cap_bytes") / 1073741824);
	if (rate != NULL)
		printf("; %s weights %.2f GB/s, prompts %.1f GFLOP/s", text(rate, "type"), real(rate, "decode_bytes_per_s") / 1e9, real(rate, "prefill_flop_per_s") / 1e9);
	if (real(json_object_get(n, "observed"), "decode_bytes_per_s") > 0)
		printf("; of late %.2f GB/s", real(json_object_get(n, "observed"), "decode_bytes_per_s") / 1e9);
	double mmap = real(p, "disk_mmap_bytes_per_s"), direct = real(p, "disk_direct_bytes_per_s");
	if (mmap > 0 || direct > 0)
		printf("; disk %.0f MB/s", (mmap > direct ? mmap : direct) / 1e6);
	if (json_is_true(json_object_get(p, "on_battery")))
		printf("; on battery");
	putchar('\n');
}

// print_link shows a way from or to a machine, when it is known.
static void print_link(const json_t *n, const char *key, const char *words)
{
	const json_t *l = json_object_get(json_object_get(n, "links"), key);
	if (l == NULL)
		return;
	printf("%s: %s %.2f ms one way, round trips %.1f ms (half), %.1f (9 of 10), %.1f (99 of 100)", text(n, "name"), words, real(l, "one_way_ms_mean"),
		real(l, "rtt_ms_p50"), real(l, "rtt_ms_p90"), real(l, "rtt_ms_p99"));
	if (json_object_get(l, "bytes_per_s"))
		printf(", %.1f MB/s", real(l, "bytes_per_s") / 1e6);
	else if (json_object_get(l, "bytes_per_s_least"))
		printf(", at least %.1f MB/s", real(l, "bytes_per_s_least") / 1e6);
	putchar('\n');
}

static void print_figures(const json_t *n)
{
	print_profile(n);
	print_link(n, "to", "from the coordinator");
	print_link(n, "next", "to the next stage");
}

static void print_chains(const json_t *s)
{
	const json_t *chains = json_object_get(s, "chains");
	for (size_t i = 0; i < json_array_size(chains); i++) {
		const json_t *c = json_array_get(chains, i);
		bool is_ready = json_is_true(json_object_get(c, "ready"));
		printf("chain %zu: %s%s, %lld machines, %lld answers\n", i, is_ready ? "ready" : "waits: ", is_ready ? "" : text(c, "waiting_for"), number(c, "machines"),
			number(c, "active"));
		char name[32];
		snprintf(name, sizeof name, "chain %zu", i);
		print_plan(c, name);
	}
	print_plan(s, "plan");
	if (number(s, "better_plans") > 0)
		printf("times a faster plan was found and taken: %lld\n", number(s, "better_plans"));
	if (number(s, "standing_by") > 0)
		printf("machines that stand by: %lld\n", number(s, "standing_by"));
	if (number(s, "moved") > 0)
		printf("answers that went on in another chain: %lld\n", number(s, "moved"));
}

// print_reading says how far this machine is with reading its model file once.
static void print_reading(const json_t *s)
{
	const json_t *r = json_object_get(s, "reading");
	if (r == NULL)
		return;
	printf("reading the model file once, to know its blocks: %lld of %lld MiB", number(r, "bytes_done") >> 20, number(r, "bytes_total") >> 20);
	if (json_object_get(r, "left_s"))
		printf(", %.1f MiB/s, %.0f s left", (double)number(r, "bytes_per_s") / (1 << 20), json_number_value(json_object_get(r, "left_s")));
	printf("; other machines wait for it\n");
}

// print_blocks says how far a node is with fetching the model, while it is.
static void print_blocks(const json_t *n)
{
	const json_t *b = json_object_get(n, "blocks");
	if (b == NULL || strcmp(text(b, "state"), "complete") == 0)
		return;
	printf("%s: %s the model: %lld of %lld MiB", text(n, "name"), strcmp(text(b, "state"), "failed") == 0 ? "failed to fetch" : "fetches",
		number(b, "bytes_done") >> 20, number(b, "bytes_total") >> 20);
	if (json_object_get(b, "left_s"))
		printf(", %.1f MiB/s, %.0f s left", (double)number(b, "bytes_per_s") / (1 << 20), json_number_value(json_object_get(b, "left_s")));
	printf("\n");
}

static void print_status(const json_t *s)
{
	printf("%s, %lld layers, wire type %s\n", text(s, "model"), number(s, "layers"), text(s, "wire"));
	if (json_is_true(json_object_get(s, "ready")))
		printf("ready\n");
	else
		printf("not ready: %s\n", text(s, "waiting_for"));
	printf("requests: %lld active, %lld waiting, %lld slots; %lld requests and %lld tokens so far\n", number(s, "active"), number(s, "waiting"),
		number(s, "slots"), number(s, "requests"), number(s, "tokens"));
	if (number(s, "recovered") > 0)
		printf("answers that went on after a machine was lost: %lld\n", number(s, "recovered"));
	print_chains(s);
	print_reading(s);
	printf("  %-20s %-8s %-11s %-10s %-9s %3s %-22s %s\n", "node", "id", "state", "layers", "simd", "thr", "address", "sends");
	const json_t *nodes = json_object_get(s, "nodes");
	for (size_t i = 0; i < json_array_size(nodes); i++)
		print_node(json_array_get(nodes, i));
	for (size_t i = 0; i < json_array_size(nodes); i++)
		print_counts(json_array_get(nodes, i));
	for (size_t i = 0; i < json_array_size(nodes); i++)
		print_group(json_array_get(nodes, i));
	for (size_t i = 0; i < json_array_size(nodes); i++)
		print_weights(json_array_get(nodes, i));
	for (size_t i = 0; i < json_array_size(nodes); i++)
		print_figures(json_array_get(nodes, i));
	for (size_t i = 0; i < json_array_size(nodes); i++)
		print_blocks(json_array_get(nodes, i));
	if (number(s, "invites") > 0)
		printf("%lld %s outstanding\n", number(s, "invites"), number(s, "invites") == 1 ? "invite" : "invites");
}

int status_main(const struct command_ctx *ctx)
{
	struct errmsg em;
	json_t *answer;
	if (admin_ask(ctx, json_pack("{s:s}", "cmd", "status"), &answer, &em) != OK)
		return command_fail(ctx, "%s", em.text);
	if (ctx->opts->json) {
		json_dumpf(answer, stdout, JSON_COMPACT);
		putchar('\n');
	} else {
		print_status(answer);
	}
	json_decref(answer);
	return EXIT_DONE;
}
