// The option table. Order is the order of help texts and of cluster.example.toml (where keys of one table stand together).
#include "cli/options.h"

#define AT(field) offsetof(struct options, field)
#define FOR_MODEL (FOR_RUN | FOR_SERVE | FOR_INSPECT | FOR_TOKENIZE)
#define FOR_COMPUTE (FOR_RUN | FOR_SERVE | FOR_JOIN | FOR_PROBE)
#define FOR_STATE (FOR_RUN | FOR_SERVE | FOR_INVITE | FOR_JOIN | FOR_REVOKE | FOR_DRAIN | FOR_STATUS | FOR_TRACE | FOR_PLAN | FOR_DOCTOR)
#define FOR_ALL (FOR_END - 1)

static const char *const log_words[] = {"error", "warning", "info", "debug", NULL};
static const char *const simd_words[] = {"portable", "avx2", "avx512", NULL};
static const char *const wire_words[] = {"f32", "bf16", "f16", "q8", NULL};

static const char *const plan_words[] = {"cost", "even", NULL};
static const char *const tp_words[] = {"gather", "mixed", "mixed-star", "mixed-scatter", "reduce", "reduce-star", "reduce-scatter", "mixed-ring", "reduce-ring", NULL}; // as enum split_mode
static const char *const head_words[] = {"local", "last", NULL}; // as enum head_place

const char *tp_mode_word(enum split_mode mode)
{
	return tp_words[mode];
}

static const char *const reader_words[] = {"auto", "mmap", "direct", NULL};

static const char *const trace_action_words[] = {"generate", "show", "record", NULL};
static const char *const trace_format_words[] = {"csv", "ping", "mahimahi", "netem", NULL};

static const char *const cache_action_words[] = {"ls", "gc", "verify", NULL};

static const char *const sim_action_words[] = {"run", "check", NULL};

static const struct option table[] = {
	// What to work on
	{.placeholder = "MODEL", .key = "model.path", .commands = FOR_MODEL, .kind = OPTION_PATH, .offset = AT(model), .required = true, .example = "\"/path/to/model.gguf\"",
		.help = "the model, a GGUF file"},
	{.placeholder = "MODEL", .commands = FOR_PROBE, .kind = OPTION_PATH, .offset = AT(model),
		.help = "measure with this model's weight types and layers, and the disk it is on; a GGUF file"},
	{.flag = "--model", .commands = FOR_JOIN, .kind = OPTION_PATH, .offset = AT(model), .placeholder = "FILE", .key = "model.path", .example = "\"/path/to/model.gguf\"",
		.preset_words = "fetched from the cluster",
		.help = "this machine's copy of the model, the same file as the coordinator's; without it what this machine needs is fetched and kept"},
	{.placeholder = "-", .commands = FOR_JOIN, .kind = OPTION_STDIN, .offset = AT(invite_stdin),
		.help = "read the invite from standard input"},
	{.flag = "--invite-file", .commands = FOR_JOIN, .kind = OPTION_PATH, .offset = AT(invite_file), .placeholder = "FILE",
		.help = "read the invite from a file; without it and without - the invite is asked for"},
	{.placeholder = "NODE", .commands = FOR_REVOKE, .kind = OPTION_STRING, .offset = AT(node), .required = true,
		.help = "the node to shut out, by its name or its id as `hearth status` shows them"},
	{.placeholder = "NODE", .commands = FOR_DRAIN, .kind = OPTION_STRING, .offset = AT(node), .required = true,
		.help = "the node, by its name or its id as `hearth status` shows them"},
	{.flag = "--undo", .commands = FOR_DRAIN, .kind = OPTION_BOOL, .offset = AT(undo), .help = "let it hold layers again"},
	{.flag = "--no-qr", .commands = FOR_INVITE, .kind = OPTION_BOOL, .offset = AT(no_qr),
		.help = "print the invite without its QR code"},
	{.flag = "--no-address", .commands = FOR_INVITE, .kind = OPTION_BOOL, .offset = AT(no_address),
		.help = "leave the coordinator's addresses out: the new machine then finds it on the local network, or not at all"},

	{.placeholder = "TOPOLOGY", .commands = FOR_EMULATE, .kind = OPTION_PATH, .offset = AT(topology),
		.help = "devices and links, a TOML file; left out with --send"},
	{.flag = "--control", .commands = FOR_EMULATE, .kind = OPTION_PATH, .offset = AT(control), .placeholder = "SOCKET",
		.help = "take commands at this Unix socket, which only this user can open"},
	{.flag = "--send", .commands = FOR_EMULATE, .kind = OPTION_STRING, .offset = AT(send), .placeholder = "COMMAND",
		.help = "give a command to the relay at --control, print its answer and end"},

	// What to say
	{.flag = "--prompt", .letter = 'p', .commands = FOR_RUN, .kind = OPTION_STRING, .offset = AT(prompt),
		.placeholder = "TEXT", .preset_words = "standard input", .help = "the text to continue; with --chat, to answer"},
	{.flag = "--prompt", .letter = 'p', .commands = FOR_TOKENIZE, .kind = OPTION_STRING, .offset = AT(prompt),
		.placeholder = "TEXT", .preset_words = "standard input", .help = "the text"},
	{.flag = "--chat", .key = "run.chat", .commands = FOR_RUN | FOR_TOKENIZE, .kind = OPTION_BOOL, .offset = AT(chat),
		.help = "put the text into the model's chat template as the user's turn"},
	{.flag = "--system", .key = "run.system", .commands = FOR_RUN | FOR_TOKENIZE, .kind = OPTION_STRING, .offset = AT(system), .example = "\"You are a helpful assistant.\"",
		.placeholder = "TEXT", .preset_words = "the template's own", .help = "the system turn that --chat puts first"},
	{.flag = "--special", .commands = FOR_TOKENIZE, .kind = OPTION_BOOL, .offset = AT(special),
		.help = "make control tokens of texts like <|im_start|>"},
	{.flag = "--no-bos", .commands = FOR_TOKENIZE, .kind = OPTION_BOOL, .offset = AT(no_bos),
		.help = "leave out the token that the file wants at the start of a text"},
	{.flag = "--max-tokens", .letter = 'n', .key = "run.max_tokens", .commands = FOR_RUN, .kind = OPTION_INT,
		.offset = AT(max_tokens), .preset = "128", .min = 1, .max = INT32_MAX, .placeholder = "N", .help = "tokens to generate at most"},
	{.flag = "--attach", .commands = FOR_RUN, .kind = OPTION_BOOL, .offset = AT(attach),
		.help = "send the prompt to the coordinator that runs in --state instead of loading a model here"},
	{.flag = "--no-logits-hash", .key = "run.no_logits_hash", .commands = FOR_RUN, .kind = OPTION_BOOL, .offset = AT(no_logits_hash),
		.help = "leave the hash of all logits out of --json: it costs an output head per prompt token"},

	// Sampling
	{.flag = "--temp", .key = "sampling.temp", .commands = FOR_RUN, .kind = OPTION_FLOAT, .offset = AT(temp), .preset = "0",
		.f_max = 100, .placeholder = "T", .help = "temperature; 0 always takes the likeliest token"},
	{.flag = "--top-k", .key = "sampling.top_k", .commands = FOR_RUN, .kind = OPTION_INT, .offset = AT(top_k), .preset = "0",
		.max = INT32_MAX, .placeholder = "K", .help = "keep the K likeliest tokens; 0 keeps all"},
	{.flag = "--top-p", .key = "sampling.top_p", .commands = FOR_RUN, .kind = OPTION_FLOAT, .offset = AT(top_p), .preset = "1",
		.f_max = 1, .placeholder = "P", .help = "keep the likeliest tokens that together reach probability P"},
	{.flag = "--min-p", .key = "sampling.min_p", .commands = FOR_RUN, .kind = OPTION_FLOAT, .offset = AT(min_p), .preset = "0",
		.f_max = 1, .placeholder = "P", .help = "keep tokens at least P times as likely as the likeliest"},
	{.flag = "--seed", .key = "sampling.seed", .commands = FOR_RUN, .kind = OPTION_U64, .offset = AT(seed), .example = "42", .placeholder = "S",
		.preset_words = "drawn", .help = "the sampler's seed: the same seed gives the same text"},

	// The cluster
	{.flag = "--split", .key = "cluster.split", .commands = FOR_SERVE, .kind = OPTION_SPLIT, .offset = AT(split), .example = "[10, 12, 8]", .min = 1,
		.max = LAYERS_MAX, .items = "numbers of layers", .placeholder = "N,N,...", .preset_words = "as --plan says",
		.help = "layers of each stage, all rounds together; the first stage is this machine unless --no-node"},
	{.flag = "--plan", .key = "cluster.plan", .commands = FOR_SERVE, .kind = OPTION_ENUM, .offset = AT(plan), .choices = plan_words,
		.preset = "cost", .placeholder = "HOW",
		.help = "who gets which layers when no --split says so: what is fastest by the measured figures, without machines that would slow it down "
			"(cost), or everybody as many (even)"},
	{.flag = "--rounds", .key = "cluster.rounds", .commands = FOR_SERVE, .kind = OPTION_INT, .offset = AT(rounds), .preset = "1",
		.min = 1, .max = ROUNDS_MAX, .placeholder = "K",
		.help = "trips of a token round the machines, by hand when it is more than 1 (fewer where none has so many layers); else the plan chooses, and even ones "
			"make 1. With more than one, each machine reads the weights of its next layers while others compute"},
	{.flag = "--streams", .key = "cluster.streams", .commands = FOR_SERVE, .kind = OPTION_SPLIT, .offset = AT(streams), .example = "[0, 45, 0]", .max = 100,
		.items = "percentages", .placeholder = "P,P,...", .preset_words = "as little as must be; with plans by cost, what suits them",
		.help = "of the weights of each stage of --split or --place, how much is read from its disk anew for each token where not all fits (--mem): more than must be leaves "
			"a larger window, which is filled while others compute"},
	{.flag = "--no-groups", .key = "cluster.no_groups", .commands = FOR_SERVE | FOR_PLAN, .kind = OPTION_BOOL, .offset = AT(no_groups),
		.help = "plan each layer on one machine; else machines with good links share layers where that is faster"},
	{.flag = "--no-node", .key = "cluster.no_node", .commands = FOR_SERVE, .kind = OPTION_BOOL, .offset = AT(no_node),
		.help = "hold no layers on this machine"},
	{.flag = "--nodes", .key = "cluster.nodes", .commands = FOR_SERVE, .kind = OPTION_INT, .offset = AT(nodes), .preset = "0",
		.max = SWARM_NODES_MAX, .placeholder = "N", .help = "wait until N nodes have joined before layers are given out"},
	{.flag = "--replicas", .key = "cluster.replicas", .commands = FOR_SERVE, .kind = OPTION_INT, .offset = AT(replicas), .preset = "1",
		.min = 1, .max = CHAINS_MAX, .placeholder = "N",
		.help = "hold every layer N times: the machines there at the start, N at least, are dealt to N chains, each answers on its own"},
	{.flag = "--place", .key = "cluster.place", .commands = FOR_SERVE, .kind = OPTION_STRING, .offset = AT(place), .example = "\"a=15,b=15/c=20,d=10\"",
		.placeholder = "NAME=N,...", .preset_words = "as --plan or --replicas says",
		.help = "who holds how many layers, by name, in their order; b:3+c:1=15 lets b and c share each of 15 layers, in parts of three and one, and b:3+c:1*=15 lets c pass on "
			"what the others send (--tp-mode gather); after a slash "
			"another chain that holds every layer. Everybody else stands by, and takes the layers of one that is lost"},
	{.flag = "--slots", .key = "cluster.slots", .commands = FOR_SERVE, .kind = OPTION_INT, .offset = AT(slots), .preset = "8",
		.min = 1, .max = SESSIONS_MAX, .placeholder = "N", .help = "requests computed at once, by each chain; each holds --ctx tokens of cache"},
	{.flag = "--session-wait", .key = "cluster.session_wait", .commands = FOR_SERVE, .kind = OPTION_INT, .offset = AT(session_wait), .preset = "150",
		.min = 1, .max = 86400, .placeholder = "SECONDS", .help = "how long a request waits for machines that can answer it, before it fails"},
	{.flag = "--dead-after", .key = "cluster.dead_after", .commands = FOR_SERVE | FOR_JOIN, .kind = OPTION_INT, .offset = AT(dead_after), .preset = "8000",
		.min = 100, .max = 600000, .placeholder = "MS",
		.help = "milliseconds of silence after which a machine counts as lost; Wi-Fi stalls for seconds and lives, so less than 5000 is for wires"},
	{.flag = "--tp", .commands = FOR_RUN, .kind = OPTION_STRING, .offset = AT(tp), .placeholder = "SHARES", .preset_words = "layers are computed whole",
		.help = "share each layer among members in these proportions, such as 3:2:1, each on a thread of its own with its own weights: what a "
			"tensor-parallel group of machines computes, and the same bits"},
	{.flag = "--tp-mode", .key = "cluster.tp_mode", .commands = FOR_RUN | FOR_SERVE, .kind = OPTION_ENUM, .offset = AT(tp_mode), .choices = tp_words, .preset = "gather", .placeholder = "MODE",
		.help = "what members of --tp, or of a group in --place, send each other: rows everywhere (gather), sums for the second half of a layer (mixed) or for "
			"both (reduce: where heads allow), which every member completes, the first one (-star), or each for its rows (-scatter), or that go round, from each "
			"to the next (-ring)"},
	{.flag = "--tp-payload", .key = "cluster.tp_payload", .commands = FOR_RUN | FOR_SERVE, .kind = OPTION_ENUM, .offset = AT(tp_payload), .choices = wire_words,
		.preset = "f32", .placeholder = "TYPE",
		.help = "what sums of the modes mixed and reduce are rounded to on their way (bf16 or q8): fewer bytes, and other bits than one machine's"},
	{.flag = "--head", .key = "cluster.head", .commands = FOR_RUN | FOR_SERVE, .kind = OPTION_ENUM, .offset = AT(head), .choices = head_words, .preset = "local",
		.placeholder = "WHERE",
		.help = "where the output head is, whose matrix can be as large as several layers: on this machine (local), or on whoever has the last layers, cut among "
			"the members of a group (last): they see what answers are likely to say"},
	{.flag = "--wire", .key = "cluster.wire", .commands = FOR_RUN | FOR_SERVE, .kind = OPTION_ENUM, .offset = AT(wire),
		.choices = wire_words, .preset = "f32", .placeholder = "TYPE",
		.help = "what hidden states are rounded to at every layer boundary, so that any cut gives the same text"},
	{.flag = "--listen", .key = "cluster.listen", .commands = FOR_SERVE, .kind = OPTION_HOST_PORT, .offset = AT(listen),
		.preset = "0.0.0.0:7433", .placeholder = "HOST:PORT", .help = "where nodes connect; port 0 takes a free one"},
	{.flag = "--advertise", .key = "cluster.advertise", .commands = FOR_SERVE, .kind = OPTION_HOST_PORT_LIST,
		.offset = AT(advertise), .example = "[\"192.168.1.10:7433\"]", .min = 1, .placeholder = "HOST:PORT,...", .preset_words = "this machine's addresses",
		.help = "addresses that invites tell nodes to try"},

	// The HTTP API
	{.flag = "--http", .key = "http.listen", .commands = FOR_SERVE, .kind = OPTION_HOST_PORT, .offset = AT(http),
		.preset = "127.0.0.1:7430", .placeholder = "HOST:PORT", .loopback_only = true,
		.help = "where the OpenAI-compatible API listens; this machine only; port 0 takes a free one"},
	{.flag = "--no-http", .key = "http.disabled", .commands = FOR_SERVE, .kind = OPTION_BOOL, .offset = AT(no_http),
		.help = "offer no HTTP API"},
	{.flag = "--no-journal", .key = "http.no_journal", .commands = FOR_SERVE, .kind = OPTION_BOOL, .offset = AT(no_journal),
		.help = "keep no request on disk: a coordinator that is killed forgets what was under way; removes what an earlier one left"},

	// Blocks of the model
	{.placeholder = "ACTION", .commands = FOR_CACHE, .kind = OPTION_WORD, .offset = AT(cache_action), .choices = cache_action_words, .required = true,
		.help = "what to do, as above"},
	{.flag = "--cache", .key = "cache.path", .commands = FOR_SERVE | FOR_JOIN | FOR_CACHE | FOR_PROBE | FOR_DOCTOR, .kind = OPTION_PATH, .offset = AT(cache), .example = "\"/home/me/.cache/hearth\"",
		.placeholder = "DIR", .preset_words = "$XDG_CACHE_HOME/hearth, else ~/.cache/hearth", .help = "where what was fetched of models, and what was measured, is kept"},
	{.flag = "--cache-max", .key = "cache.max", .commands = FOR_JOIN | FOR_CACHE, .kind = OPTION_SIZE, .offset = AT(cache_max), .example = "\"50G\"",
		.min = 1 << 20, .max = INT64_C(1) << 50, .placeholder = "SIZE", .preset_words = "what the disk has",
		.help = "how much may be kept, such as 50G; models used longest ago go first, then blocks that no plan needs"},
	{.flag = "--upload-max", .key = "cache.upload_max", .commands = FOR_SERVE | FOR_JOIN, .kind = OPTION_SIZE, .offset = AT(upload_max), .example = "\"20M\"",
		.min = 1 << 16, .max = INT64_C(1) << 40, .placeholder = "SIZE", .preset_words = "no limit",
		.help = "bytes per second that this machine gives to others of the model; while it computes it gives at most a quarter of what it could"},

	// This machine as a node
	{.flag = "--name", .key = "node.name", .commands = FOR_SERVE | FOR_JOIN, .kind = OPTION_NAME, .offset = AT(name), .example = "\"kitchen-pi\"",
		.placeholder = "NAME", .preset_words = "the host name", .help = "what this machine is called in the cluster"},
	{.flag = "--listen", .key = "node.listen", .commands = FOR_JOIN, .kind = OPTION_HOST_PORT, .offset = AT(link),
		.preset = "0.0.0.0:7434", .placeholder = "HOST:PORT", .help = "where other nodes connect; port 0 takes a free one"},
	{.flag = "--advertise", .key = "node.advertise", .commands = FOR_JOIN, .kind = OPTION_HOST_PORT_LIST, .offset = AT(node_advertise),
		.example = "[\"203.0.113.5:7434\"]", .min = 1, .placeholder = "HOST:PORT,...", .preset_words = "none",
		.help = "addresses that other nodes try before the one that the coordinator sees: for a port that a router forwards"},
	{.flag = "--from", .key = "node.from", .commands = FOR_JOIN, .kind = OPTION_ADDRESS, .offset = AT(from), .example = "\"192.168.1.11\"",
		.placeholder = "ADDRESS", .preset_words = "what the system chooses",
		.help = "this machine's address to connect from, when it has several; it is where other nodes are sent"},

	// Looking for what is wrong
	{.flag = "--to", .commands = FOR_DOCTOR, .kind = OPTION_HOST_PORT, .offset = AT(to), .min = 1, .placeholder = "HOST:PORT",
		.help = "try to reach the coordinator there, and measure the way to it"},
	{.flag = "--live", .commands = FOR_DOCTOR, .kind = OPTION_BOOL, .offset = AT(live),
		.help = "look at the cluster whose coordinator runs here, too: its nodes, and the links between them"},

	// Finding each other
	{.flag = "--discovery", .key = "discovery", .commands = FOR_SERVE | FOR_JOIN | FOR_DOCTOR, .kind = OPTION_BOOL, .offset = AT(discovery), .preset = "true",
		.help = "announce the coordinator on the local network, and look for it there (mDNS, by avahi-daemon)"},
	{.flag = "--no-discovery", .commands = FOR_SERVE | FOR_JOIN | FOR_DOCTOR, .kind = OPTION_BOOL, .offset = AT(no_discovery),
		.help = "the same as --discovery=false: nothing is announced, only the invite's addresses are tried"},

	// Computing
	{.flag = "--keep-mem", .key = "node.keep_mem", .commands = FOR_SERVE | FOR_JOIN, .kind = OPTION_INT, .offset = AT(keep_mem), .preset = "256",
		.max = 1 << 20, .placeholder = "MIB", .help = "memory for states sent on, so that when the machine behind is lost only its layers are computed again; 0: none"},
	{.flag = "--keep-disk", .key = "node.keep_disk", .commands = FOR_SERVE | FOR_JOIN, .kind = OPTION_SIZE, .offset = AT(keep_disk), .example = "\"2G\"",
		.min = 1 << 16, .max = INT64_C(1) << 50, .placeholder = "SIZE", .preset_words = "none",
		.help = "disk for what passes --keep-mem, encrypted, gone with the process; each token writes a row of some KB"},
	{.flag = "--keep-dir", .key = "node.keep_dir", .commands = FOR_SERVE | FOR_JOIN, .kind = OPTION_PATH, .offset = AT(keep_dir),
		.example = "\"/var/tmp\"", .placeholder = "DIR", .preset_words = "the state directory", .help = "where --keep-disk goes"},
	{.flag = "--no-probe", .key = "node.no_probe", .commands = FOR_SERVE | FOR_JOIN, .kind = OPTION_BOOL, .offset = AT(no_probe),
		.help = "do not measure how fast this machine is while it has nothing to do; figures that are kept are used"},
	{.flag = "--threads", .key = "compute.threads", .commands = FOR_COMPUTE, .kind = OPTION_INT, .offset = AT(threads), .example = "4", .min = 1,
		.max = THREADS_MAX, .placeholder = "N", .preset_words = "every core", .help = "compute threads"},
	{.flag = "--max-threads", .key = "compute.max_threads", .commands = FOR_COMPUTE, .kind = OPTION_INT, .offset = AT(max_threads), .example = "2", .min = 1,
		.max = THREADS_MAX, .placeholder = "N", .preset_words = "no limit", .help = "compute threads at most, however many cores there are"},
	{.flag = "--no-give-way", .key = "compute.no_give_way", .commands = FOR_SERVE | FOR_JOIN, .kind = OPTION_BOOL, .offset = AT(no_give_way),
		.help = "compute with all threads and keep all weights even while other programs want processors or memory"},
	{.flag = "--slowdown", .key = "compute.slowdown", .commands = FOR_COMPUTE, .kind = OPTION_FLOAT, .offset = AT(slowdown), .preset = "1",
		.f_min = 1, .f_max = 100, .placeholder = "FACTOR", .help = "rest after each computation so that it takes FACTOR times as long: to try how a slower machine would do"},
	{.flag = "--mem", .key = "compute.mem", .commands = FOR_COMPUTE, .kind = OPTION_SIZE, .offset = AT(mem), .example = "\"3G\"", .min = 16 << 20,
		.max = INT64_C(1) << 50, .placeholder = "SIZE", .preset_words = "no cap",
		.help = "memory this process may take, all of it: weights that do not fit are read from disk again for every token, such as 3G or 900M"},
	{.flag = "--reader", .key = "compute.reader", .commands = FOR_COMPUTE, .kind = OPTION_ENUM, .offset = AT(reader), .choices = reader_words,
		.preset = "auto", .placeholder = "NAME",
		.help = "how weights that do not fit are read: through the page cache (mmap), past it (direct), or by the faster of the two (auto)"},
	{.flag = "--ctx", .key = "compute.ctx", .commands = FOR_RUN | FOR_SERVE, .kind = OPTION_INT, .offset = AT(ctx), .example = "4096", .min = 1,
		.max = CTX_MAX, .placeholder = "N", .preset_words = "what the model was trained for, at most 4096, and less where --mem holds no more",
		.help = "tokens of prompt and answer that a request may have"},
	{.flag = "--prefill-chunk", .key = "compute.prefill_chunk", .commands = FOR_RUN | FOR_SERVE, .kind = OPTION_INT,
		.offset = AT(prefill_chunk), .preset = "512", .min = 1, .max = CHUNK_TOKENS_MAX, .placeholder = "N",
		.help = "prompt tokens computed together"},
	{.flag = "--simd", .key = "compute.simd", .commands = FOR_COMPUTE, .kind = OPTION_WORD, .offset = AT(simd), .example = "\"portable\"",
		.choices = simd_words, .placeholder = "NAME", .preset_words = "the fastest here", .help = "instruction set of the kernels"},

	{.flag = "--fresh", .commands = FOR_PROBE, .kind = OPTION_BOOL, .offset = AT(fresh), .help = "measure again, also what was measured before"},

	// Inspecting
	{.flag = "--tensors", .commands = FOR_INSPECT, .kind = OPTION_BOOL, .offset = AT(tensors), .help = "list every tensor"},

	// Traces of links
	{.placeholder = "ACTION", .commands = FOR_TRACE, .kind = OPTION_WORD, .offset = AT(trace_action), .choices = trace_action_words, .required = true,
		.help = "make a trace of a profile, look at one, or measure one"},
	{.placeholder = "PROFILE|FILE|FOLDER", .commands = FOR_TRACE, .kind = OPTION_STRING, .offset = AT(trace_subject),
		.help = "generate: W0 to W9, as above; show: a trace, - is standard input; record: where CSV files go"},
	{.flag = "--seconds", .commands = FOR_TRACE, .action = "generate record", .kind = OPTION_INT, .offset = AT(trace_seconds), .preset = "600", .min = 1, .max = 10000000,
		.placeholder = "N", .help = "how long the trace is"},
	{.flag = "--interval-ms", .commands = FOR_TRACE, .action = "generate", .kind = OPTION_INT, .offset = AT(interval_ms), .preset = "1000", .min = 1, .max = 60000,
		.placeholder = "N", .help = "time between probes; up to 100 ms keeps a link from power save"},
	{.flag = "--seed", .commands = FOR_TRACE, .action = "generate", .kind = OPTION_U64, .offset = AT(trace_seed), .preset = "1", .placeholder = "S",
		.help = "the same seed gives the same trace"},
	{.flag = "--station", .commands = FOR_TRACE, .action = "generate", .kind = OPTION_INT, .offset = AT(station), .preset = "0", .max = 1000, .placeholder = "N",
		.help = "which station of a home; station 0 of W9 is the straggler"},
	{.flag = "--output", .letter = 'o', .commands = FOR_TRACE, .action = "generate", .kind = OPTION_PATH, .offset = AT(output), .placeholder = "FILE",
		.preset_words = "standard output", .help = "where the CSV goes"},
	{.flag = "--format", .commands = FOR_TRACE, .action = "show", .kind = OPTION_WORD, .offset = AT(trace_format), .choices = trace_format_words, .placeholder = "NAME",
		.preset_words = "by its looks", .help = "what the file is"},

	// Simulating
	{.placeholder = "ACTION", .commands = FOR_SIM, .kind = OPTION_WORD, .offset = AT(sim_action), .choices = sim_action_words, .required = true,
		.help = "what to simulate, as above"},
	{.placeholder = "SCENARIO", .commands = FOR_SIM, .kind = OPTION_PATH, .offset = AT(sim_subject),
		.help = "machines, links, model, plan and requests, a TOML file (docs/scenarios.md); check: clusters drawn from the seeds without it"},
	{.flag = "--svg", .commands = FOR_SIM, .action = "run", .kind = OPTION_PATH, .offset = AT(sim_svg), .placeholder = "FILE",
		.help = "draw who does what when, as a Gantt chart"},
	{.flag = "--trace", .commands = FOR_SIM, .action = "run", .kind = OPTION_PATH, .offset = AT(sim_trace), .placeholder = "FILE",
		.help = "write the same as a trace for chrome://tracing or ui.perfetto.dev"},
	{.flag = "--seeds", .commands = FOR_SIM, .action = "check", .kind = OPTION_STRING, .offset = AT(sim_seeds), .preset = "1..1000", .placeholder = "A..B",
		.help = "the seeds to run, both included; A alone is one seed"},
	{.flag = "--jobs", .letter = 'j', .commands = FOR_SIM, .action = "check", .kind = OPTION_INT, .offset = AT(sim_jobs), .preset = "0", .preset_words = "every core", .max = 256,
		.placeholder = "N", .help = "seeds that run at once"},
	{.flag = "--faults", .commands = FOR_SIM, .action = "check", .kind = OPTION_STRING, .offset = AT(sim_faults), .preset_words = "all", .placeholder = "LIST",
		.help = "only these classes of faults, joined by commas, or none"},
	{.flag = "--window", .commands = FOR_SIM, .action = "check", .kind = OPTION_STRING, .offset = AT(sim_window), .preset_words = "all", .placeholder = "A..B",
		.help = "only faults that begin between these seconds of virtual time"},
	{.flag = "--shrink", .commands = FOR_SIM, .action = "check", .kind = OPTION_U64, .offset = AT(sim_shrink), .placeholder = "SEED",
		.help = "find the fewest classes and the narrowest window with which a failing seed still fails"},
	{.flag = "--show", .commands = FOR_SIM, .action = "check", .kind = OPTION_BOOL, .offset = AT(sim_show), .help = "print what happens in each seed, without other processes"},

	// Planning
	{.placeholder = "MODEL", .commands = FOR_PLAN, .kind = OPTION_STRING, .offset = AT(plan_model), .preset_words = "the [model] of the cluster file",
		.help = "a GGUF file, a model's name such as llama-3.3-70b, or a scenario whose [model] is meant"},
	{.flag = "--cluster", .commands = FOR_PLAN, .kind = OPTION_PATH, .offset = AT(plan_cluster), .placeholder = "FILE",
		.help = "the machines and what lies between them, a TOML file (docs/planner.md)"},
	{.flag = "--live", .commands = FOR_PLAN, .kind = OPTION_BOOL, .offset = AT(plan_live),
		.help = "plan for the cluster whose coordinator runs in --state; so it is without --cluster"},
	{.flag = "--save", .commands = FOR_PLAN, .kind = OPTION_PATH, .offset = AT(plan_save), .placeholder = "FILE",
		.help = "write down what the running coordinator knows of its machines, as a file for --cluster"},
	{.flag = "--quant", .commands = FOR_PLAN, .kind = OPTION_STRING, .offset = AT(plan_quant), .placeholder = "TYPE", .preset_words = "the file's; q4_k of a name",
		.help = "weights of this type instead, such as q4_0, q6_k or q8_0"},
	{.flag = "--objective", .commands = FOR_PLAN, .kind = OPTION_STRING, .offset = AT(plan_objective), .preset = "tpot", .placeholder = "tpot|ttft|throughput:N",
		.help = "what is to be fast: the time per token, the time to the first one, or N answers at once"},
	{.flag = "--context", .commands = FOR_PLAN, .kind = OPTION_INT, .offset = AT(plan_context), .min = 2, .max = CTX_MAX, .placeholder = "N",
		.preset_words = "serving.ctx of the file, else 4096", .help = "tokens of prompt and answer that there must be memory for"},
	{.flag = "--prompt", .commands = FOR_PLAN, .kind = OPTION_INT, .offset = AT(plan_prompt), .preset = "256", .preset_words = "256, or half of the context", .min = 1, .max = CTX_MAX, .placeholder = "N",
		.help = "tokens of the prompt whose time to the first token is predicted"},
	{.flag = "--max-devices", .commands = FOR_PLAN, .kind = OPTION_INT, .offset = AT(plan_devices_max), .min = 1, .max = STAGES_MAX, .placeholder = "N",
		.preset_words = "no limit", .help = "machines that hold layers at most"},
	{.flag = "--must", .commands = FOR_PLAN, .kind = OPTION_STRING, .offset = AT(plan_must), .placeholder = "NAME,...", .help = "machines that must hold layers"},
	{.flag = "--without", .commands = FOR_PLAN, .kind = OPTION_STRING, .offset = AT(plan_without), .placeholder = "NAME,...",
		.help = "machines that must hold none"},
	{.flag = "--layers", .commands = FOR_PLAN, .kind = OPTION_STRING, .offset = AT(plan_layers), .placeholder = "NAME=N,...",
		.help = "layers given by hand; the other machines share what is left"},
	{.flag = "--order", .commands = FOR_PLAN, .kind = OPTION_STRING, .offset = AT(plan_order), .placeholder = "NAME,...",
		.help = "the ring's order, of these machines only; the coordinator's is first when it holds layers"},
	{.flag = "--rounds", .commands = FOR_PLAN, .kind = OPTION_INT, .offset = AT(plan_rounds), .min = 1, .max = 8, .placeholder = "K", .preset_words = "the fastest, up to 8",
		.help = "trips of a token round the machines"},
	{.flag = "--head-layers", .commands = FOR_PLAN, .kind = OPTION_INT, .offset = AT(plan_head_layers), .preset = "0", .max = LAYERS_MAX, .placeholder = "N",
		.help = "the first and the last N layers only on machines that are not marked trusted = false"},
	{.flag = "--coordinator", .commands = FOR_PLAN, .kind = OPTION_NAME, .offset = AT(plan_head), .placeholder = "NAME", .preset_words = "the file's, else its first machine",
		.help = "the machine that takes requests and computes the output head"},
	{.flag = "--svg", .commands = FOR_PLAN, .kind = OPTION_PATH, .offset = AT(sim_svg), .placeholder = "FILE", .help = "draw the ring, and who does what when"},
	{.flag = "--no-what-if", .commands = FOR_PLAN, .kind = OPTION_BOOL, .offset = AT(plan_no_what_if), .help = "leave out what other machines and links would change"},

	// Every command
	{.flag = "--json", .commands = FOR_DOCTOR | FOR_SIM | FOR_TRACE | FOR_CACHE | FOR_RUN | FOR_STATUS | FOR_INSPECT | FOR_TOKENIZE | FOR_INVITE | FOR_PROBE | FOR_PLAN, .kind = OPTION_BOOL,
		.offset = AT(json), .help = "print one JSON object, for programs"},
	{.flag = "--json", .commands = FOR_EMULATE, .kind = OPTION_BOOL, .offset = AT(json), .help = "print a JSON object for each event, for programs"},
	{.flag = "--state", .key = "state", .commands = FOR_STATE, .kind = OPTION_PATH, .offset = AT(state), .example = "\"/home/me/.local/state/hearth\"", .placeholder = "DIR",
		.preset_words = "$XDG_STATE_HOME/hearth, else ~/.local/state/hearth",
		.help = "directory of keys, members and the admin socket; one coordinator or node at a time uses it"},
	{.flag = "--log", .key = "log", .commands = FOR_ALL, .kind = OPTION_ENUM, .offset = AT(log), .choices = log_words,
		.preset = "info", .placeholder = "LEVEL", .help = "what goes to standard error"},
	{.flag = "--config", .commands = FOR_ALL, .kind = OPTION_PATH, .offset = AT(config), .placeholder = "FILE",
		.help = "read options from a TOML file; the command line overrides it"},
	{.flag = "--help", .letter = 'h', .commands = FOR_ALL, .kind = OPTION_BOOL, .offset = AT(help), .help = "print this text"},
};

_Static_assert(ARRAY_LEN(table) <= OPTIONS_MAX, "struct options has an origin for every entry");
_Static_assert(sizeof(enum wire_type) == sizeof(int) && sizeof(enum log_level) == sizeof(int) && sizeof(enum weight_way) == sizeof(int) && sizeof(enum plan_way) == sizeof(int),
	"OPTION_ENUM stores an int");

size_t n_options(void)
{
	return ARRAY_LEN(table);
}

const struct option *option_at(size_t i)
{
	return &table[i];
}

const char *option_name(const struct option *opt)
{
	return opt->flag ? opt->flag : opt->placeholder;
}
