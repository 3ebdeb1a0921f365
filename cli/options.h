// Options: one table drives the command line, the keys of the TOML file, every --help text and cluster.example.toml.
//
// To add an option: a field in `struct options`, an entry in option_table.c. Nothing else knows its name. A value comes from
// its default, then from the file of --config, then from the command line; each is checked by the same code.
// Secrets have no option: argv and the environment are visible to others of the machine. One thread, at start.
#ifndef HEARTH_CLI_OPTIONS_H
#define HEARTH_CLI_OPTIONS_H

#include "base/arena.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/tensor_split.h"
#include "base/wire_type.h"
#include "cli/host_port.h"
#include "engine/weight_reader.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// Which commands take an option; `struct command` has one of these.
enum {
	FOR_RUN = 1 << 0,
	FOR_SERVE = 1 << 1,
	FOR_INVITE = 1 << 2,
	FOR_JOIN = 1 << 3,
	FOR_REVOKE = 1 << 4,
	FOR_STATUS = 1 << 5,
	FOR_INSPECT = 1 << 6,
	FOR_TOKENIZE = 1 << 7,
	FOR_CONFIG = 1 << 8,
	FOR_TRACE = 1 << 9,
	FOR_SIM = 1 << 10,
	FOR_EMULATE = 1 << 11,
	FOR_DRAIN = 1 << 12,
	FOR_CACHE = 1 << 13,
	FOR_PROBE = 1 << 14,
	FOR_PLAN = 1 << 15,
	FOR_DOCTOR = 1 << 16,
	FOR_END = 1 << 17, // behind the last one: commands.c compares
};

enum option_kind {
	OPTION_BOOL,           // bool; a flag without a value, or --flag=true|false
	OPTION_INT,            // int32_t in [min, max]
	OPTION_U64,            // uint64_t, decimal
	OPTION_FLOAT,          // float in [f_min, f_max]
	OPTION_SIZE,           // uint64_t, bytes in [min, max]; a text such as 3G or 512M, in steps of 1,024
	OPTION_STRING,         // const char *, not empty
	OPTION_PATH,           // const char *, a file or directory name, not empty
	OPTION_NAME,           // const char *, at most NAME_CAP - 1 letters, digits, '.', '_', '-'
	OPTION_ENUM,           // int (or an enum): index into `choices`
	OPTION_WORD,           // const char *: one of `choices`
	OPTION_SPLIT,          // struct split, whose numbers are of `items`
	OPTION_ADDRESS,        // const char *, an IPv4 or IPv6 address
	OPTION_HOST_PORT,      // struct host_port
	OPTION_HOST_PORT_LIST, // struct host_port_list
	OPTION_STDIN,          // bool; the one argument "-"
};

struct split {
	int32_t at[STAGES_MAX]; // of each stage
	int32_t n;              // 0: not given
};

struct host_port_list {
	struct host_port at[ADDRS_MAX];
	int32_t n;
};

#define OPTIONS_MAX 128 // entries of the table; a static assertion in option_table.c compares

// Every option of every command. Strings are borrowed from argv or from `config_text`, NULL when not given.
// Who gets which layers without a split.
enum plan_way { PLAN_BY_COST, PLAN_EVEN };
// Where the output head (lm_head) is.
enum head_place { HEAD_HERE, HEAD_LAST };

struct options {
	// all commands
	const char *config;
	const char *state; // NULL: state_dir_open chooses
	enum log_level log;
	bool help;
	bool json;

	// model and computing
	const char *model;
	int32_t threads; // 0: every core this process may use, see options_n_threads
	int32_t max_threads; // 0: no limit
	bool no_give_way;
	float slowdown;
	int32_t prefill_chunk;
	int32_t ctx;      // 0: the smaller of what the model was trained for and 4,096
	uint64_t mem;     // bytes this process may take; 0: no cap
	enum weight_way reader;
	const char *simd; // for kernels_find; NULL: the fastest of this machine
	enum wire_type wire;

	// run
	const char *prompt;
	int32_t max_tokens;
	float temp;
	int32_t top_k; // 0: off
	float top_p;
	float min_p;
	uint64_t seed; // options_given tells whether there is one
	bool chat;
	const char *system;
	bool no_logits_hash;
	bool attach;

	// tokenize
	bool special;
	bool no_bos;

	// serve
	struct split split;   // layers
	struct split streams; // per cent of a stage's weights
	enum plan_way plan;
	int32_t rounds;
	const char *tp;
	int tp_mode;    // enum split_mode
	int tp_payload; // enum wire_type
	enum head_place head;
	bool no_node;
	struct host_port listen; // serve: where nodes connect
	struct host_port http;   // always loopback
	bool no_http;
	bool no_journal;
	int32_t slots;
	int32_t keep_mem;     // MiB
	uint64_t keep_disk;   // bytes; 0: none
	const char *keep_dir; // NULL: the state directory
	int32_t session_wait; // s
	int32_t dead_after;   // ms
	int32_t nodes;
	int32_t replicas;
	const char *place; // NULL: none; placement_words_parse reads it
	struct host_port_list advertise;

	// serve, join
	const char *name;
	bool discovery; // options_discovery tells both
	bool no_discovery;

	// join
	const char *invite_file;
	bool invite_stdin;
	struct host_port link; // join: where other nodes connect
	struct host_port_list node_advertise;
	const char *from;

	// the cache of model blocks: join, cache
	const char *cache;      // NULL: cache_dir_open chooses
	uint64_t cache_max;     // bytes; 0: what the disk has
	uint64_t upload_max;    // serve, join: bytes per second; 0: no limit
	const char *cache_action;

	// probe, serve, join
	bool fresh;    // probe: measure again
	bool no_probe; // serve, join

	// inspect
	bool tensors;

	// emulate
	const char *topology;
	const char *control;
	const char *send;

	// doctor
	struct host_port to; // options_given tells whether there is one
	bool live;

	// invite
	bool no_qr;
	bool no_address;

	// revoke, drain
	const char *node;
	bool undo; // drain

	// trace
	const char *trace_action;
	const char *trace_subject; // a profile or a file
	int32_t trace_seconds;
	int32_t interval_ms;
	int32_t station;
	uint64_t trace_seed;
	const char *output;       // NULL: standard output
	const char *trace_format; // NULL: by its looks

	// sim
	const char *sim_action;
	const char *sim_subject; // a scenario file
	const char *sim_seeds;   // "A..B"
	const char *sim_faults;  // words joined by commas, NULL: all
	const char *sim_window;  // "A..B", seconds, NULL: all
	uint64_t sim_shrink;     // options_given tells whether there is one
	int32_t sim_jobs;        // 0: every core
	bool sim_show;
	const char *sim_svg;   // NULL: no picture
	const char *sim_trace; // NULL: no trace

	// plan
	const char *plan_model; // a GGUF file, a scenario, or a known name; NULL: the cluster file's
	const char *plan_cluster;
	bool plan_live;
	const char *plan_save; // NULL: nowhere
	const char *plan_quant;
	const char *plan_objective; // "tpot", "ttft", "throughput:N"
	int32_t plan_context;       // tokens; 0: the file's
	int32_t plan_prompt;
	int32_t plan_devices_max;   // 0: no limit
	int32_t plan_rounds;        // 0: free
	int32_t plan_head_layers;
	const char *plan_must;      // names joined by commas, as the next ones
	const char *plan_without;
	const char *plan_order;
	const char *plan_layers;    // "NAME=N,..."
	const char *plan_head;      // the coordinator; NULL: the file's
	bool no_groups;
	bool plan_no_what_if;

	uint8_t origins[OPTIONS_MAX]; // enum option_origin of each entry
	struct arena config_text;     // owned: strings of the file
};

enum option_origin { FROM_DEFAULT, FROM_FILE, FROM_COMMAND_LINE };

struct option {
	const char *flag;     // "--threads"; NULL for an argument (see `placeholder`)
	char letter;          // 'p' for -p, or 0
	bool required;        // an argument the command cannot do without
	const char *key;      // "compute.threads" in the file; NULL: command line only
	uint32_t commands;    // FOR_ bits
	const char *action;   // "generate show": the words of ACTION that take it; NULL: all
	enum option_kind kind;
	size_t offset;        // of the field in struct options
	const char *preset;   // the default as one would type it; NULL: zeroed
	const char *preset_words; // what help calls the default when `preset` does not say it
	const char *example;  // the value in the example file, as TOML; NULL: the default
	int64_t min, max;     // OPTION_INT; OPTION_HOST_PORT: lowest port in min
	double f_min, f_max;  // OPTION_FLOAT
	const char *const *choices; // NULL-terminated
	const char *items;    // OPTION_SPLIT: "numbers of layers"
	bool loopback_only;   // OPTION_HOST_PORT: other machines must not reach it
	const char *placeholder; // "N", "HOST:PORT"
	const char *help;     // one sentence without a full stop; help texts put `action` before it
};

// tp_mode_word is what --tp-mode takes.
const char *tp_mode_word(enum split_mode mode);
// The table: option_at(0) to option_at(n_options() - 1), in the order of help texts.
size_t n_options(void);
const struct option *option_at(size_t i);
// option_name returns what a person calls it: the flag, else the placeholder.
const char *option_name(const struct option *opt);

// options_init puts every default in place.
void options_init(struct options *o);
// options_deinit frees what the file's strings live in; safe on zeroed memory.
void options_deinit(struct options *o);
// options_parse reads the arguments after the command's name, then the file of --config. `command` is one FOR_ bit, `command_name` its
// word. With --help among the arguments it sets o->help and looks no further. ERR_USAGE: the command line is wrong; any
// other error is about the file, and its text begins with file:line. `o` comes from options_init.
MUST_USE enum err options_parse(struct options *o, uint32_t command, const char *command_name, int argc, char *const argv[],
	struct errmsg *em);

// options_given tells whether the field was set by the file or the command line: options_given(o, offsetof(struct options, seed)).
bool options_given(const struct options *o, size_t field_offset);
// options_discovery: neither --discovery=false nor --no-discovery was said.
bool options_discovery(const struct options *o);
// options_n_threads returns --threads, else the number of cores this process may use.
int32_t options_n_threads(const struct options *o);

// option_text prints paragraphs, a line each, broken where the help texts are; a line that begins with a space stays as it is.
void option_text(FILE *to, const char *text);
// option_help prints "  -n, --max-tokens N   ..." for every option of one command.
void option_help(FILE *to, uint32_t command);
// option_example prints a config file that holds every key with its default, commented out.
void option_example(FILE *to);

#endif
