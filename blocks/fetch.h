// Fetching blocks: whom to ask for what next, as a pure state machine. It never sees a byte of a block, a socket or a clock.
//
// Wanted blocks come from several sources at once: the coordinator (the origin, who has all) and members who hold some. Each source has a
// few requests under way, as many as it answers in a second; who answers faster is asked for more. What another member holds is left to
// members while the origin has anything else to do, so that its link serves those who can get their blocks nowhere else.
//
//   START -> ASK ... BLOCK (its bytes came) -> CHECK: the host hashes and stores them -> CHECKED -> ... -> DONE, or FAILED
//
// A source that goes down, comes up anew, refuses, is silent, or sends what does not match its hash gives its requests back to the others. After
// silence or wrong bytes its link is closed and it is left alone for a pause that doubles; a member that sent wrong bytes is asked for nothing more
// before the next START, the origin not for that block. A block that is late at one source is asked for at another that has nothing else to do: the
// first to come counts.
//
// One thread owns it. Memory: FETCH_SETS(sources_max) sets of the model's blocks, given at init; nothing is allocated. What has been
// fetched survives any end: a new START asks for what is still missing, whoever began with it.
#ifndef HEARTH_BLOCKS_FETCH_H
#define HEARTH_BLOCKS_FETCH_H

#include "base/err.h"
#include "blocks/block_set.h"
#include "blocks/manifest.h"

#include <stdbool.h>
#include <stdint.h>

#define FETCH_SOURCES_MAX 32
#define FETCH_WINDOW_MAX 64  // requests at one source
#define FETCH_EFFECTS_MAX (FETCH_SOURCES_MAX + 64)
#define FETCH_SETS(n_sources) ((size_t)(n_sources) + 4)

struct fetch_limits {
	int32_t sources_max;    // at most FETCH_SOURCES_MAX
	int32_t window_max;     // requests under way at one source, at most FETCH_WINDOW_MAX
	int32_t under_way_max;  // at all sources together, blocks being checked included: the host's memory
	int64_t silence_ns;     // a source with requests that sends nothing for so long is given up
	int64_t whole_ns;       // and so is one from which no block came that it owes, whatever else it sends
	int64_t late_ns;        // a request older than this is tried elsewhere, too, when there is nothing else to do
	int64_t pause_ns, pause_max_ns; // before a source that failed is asked again
};
extern const struct fetch_limits fetch_limits_default;

enum fetch_event_type {
	FETCH_EV_START,    // blocks are wanted: in place of those wanted before
	FETCH_EV_STOP,     // none is
	FETCH_EV_SOURCE_UP, // a new link: what was asked over the one before is not coming
	FETCH_EV_SOURCE_DOWN,
	FETCH_EV_HAVE,     // what a source holds
	FETCH_EV_HEARD,    // bytes of a source came
	FETCH_EV_BLOCK,    // a whole block of a source came; answered by CHECK when it is worth anything
	FETCH_EV_REFUSED,
	FETCH_EV_CHECKED,
	FETCH_EV_TICK,
};

enum fetch_refusal {
	FETCH_REFUSED_ABSENT = 1, // it does not hold the block
	FETCH_REFUSED_BUSY,       // it does, and has too much to do
	FETCH_REFUSED_FOREIGN,    // it serves another model
};

enum fetch_check {
	FETCH_CHECK_STORED,
	FETCH_CHECK_WRONG,  // the bytes do not match the hash
	FETCH_CHECK_FAILED, // they do, and could not be stored: err says why
};

struct fetch_event {
	enum fetch_event_type type;
	int64_t now_ns;
	uint32_t source; // the host's handle, not 0
	uint32_t block;
	union {
		const struct block_set *wanted; // START; copied
		struct {
			bool is_origin;
			const struct block_set *have; // NULL: nothing yet, or, of an origin, all
		} up; // SOURCE_UP; HAVE uses have
		enum fetch_refusal refusal;
		struct {
			enum fetch_check result;
			enum err err;
		} checked;
	} u;
};

enum fetch_effect_type {
	FETCH_FX_ASK,   // source for block
	FETCH_FX_CHECK, // the bytes that just came; answers CHECKED
	FETCH_FX_CLOSE, // the link to a source; SOURCE_DOWN need not follow, and changes nothing
	FETCH_FX_DONE,  // every wanted block is stored
	FETCH_FX_FAILED, // err: the first block that could not be stored, or that nobody has right (ERR_FORMAT); stopped
};

struct fetch_effect {
	enum fetch_effect_type type;
	uint32_t source, block;
	enum err err;
	const char *why; // CLOSE: for a person
};

struct fetch_effects {
	int32_t n;
	struct fetch_effect at[FETCH_EFFECTS_MAX];
};

struct fetch_request {
	uint32_t block;
	int64_t asked_ns;
	bool is_checking; // its bytes are here
};

struct fetch_source {
	uint32_t handle; // 0: free
	bool is_origin, is_up;
	bool is_wrong; // a member that sent wrong bytes since START: what it says it holds counts for nothing
	struct block_set have;
	struct fetch_request asked[FETCH_WINDOW_MAX];
	int32_t n_asked, window;
	int32_t n_unasked; // blocks of this link that nobody asked for; more than a link before it may have owed, and it is closed
	int64_t heard_ns, whole_ns; // anything; a block that it owed. Both count from when it began to owe
	int64_t paused_ns;     // until then it is not asked
	int32_t n_failures;    // in a row: the pause doubles with each
	uint32_t begin;        // where its search for blocks begins
	int64_t rate_begin_ns; // of the second whose blocks are counted
	int32_t rate_blocks;
	uint64_t n_blocks, n_wrong, n_refused, n_silent; // for a person
};

struct fetch {
	const struct manifest *manifest; // borrowed
	struct fetch_limits limits;
	int64_t now_ns;
	bool is_running;
	struct block_set wanted; // still to be stored
	struct block_set busy;   // of these: asked for, or being checked
	struct block_set members_have; // what members that can be asked hold
	struct block_set spare;  // scratch
	struct fetch_source sources[FETCH_SOURCES_MAX];
	int32_t n_under_way;
	uint32_t turn;           // whose turn it is

	// Progress of what START asked for.
	uint64_t bytes_total, bytes_done;
	int64_t begin_ns, sample_ns;
	uint64_t sample_bytes;
	double rate; // bytes per second, smoothed
	uint64_t n_repeated; // blocks that had to be asked for again
};

// fetch_init: `words` has FETCH_SETS(limits->sources_max) * block_set_words(m->n_blocks) places.
void fetch_init(struct fetch *f, const struct manifest *m, const struct fetch_limits *limits, uint64_t *words);
// fetch_step handles one event and fills fx, which it empties first.
void fetch_step(struct fetch *f, const struct fetch_event *ev, struct fetch_effects *fx);
// fetch_deadline_ns returns when a TICK is wanted at the latest; INT64_MAX: never.
int64_t fetch_deadline_ns(const struct fetch *f);
// fetch_check asserts the invariants.
void fetch_check(const struct fetch *f);

static inline bool fetch_is_running(const struct fetch *f)
{
	return f->is_running;
}
// fetch_is_useful tells whether a source that holds these blocks could help now: whether it is worth a connection.
bool fetch_is_useful(const struct fetch *f, const struct block_set *have);

struct fetch_progress {
	uint64_t bytes_total, bytes_done;
	double rate;     // bytes per second
	int64_t left_ns; // INT64_MAX: no telling
	int32_t n_sources; // that can be asked now
	uint64_t n_repeated;
};
void fetch_progress_get(const struct fetch *f, int64_t now_ns, struct fetch_progress *out);

#endif
