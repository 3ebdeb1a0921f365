// What it takes to compute a request's answer again, and to say it in the same bytes: the content of one file of the journal (journal.h).
//
// All little-endian: magic "HRTHREQ1"; id (16 bytes); u32 CANON_VERSION; u8 wire type; model_hash (32); u8 kind; u8 flags (bit 0 stream,
// 1 include_usage, 2 hearth, 3 logits_hash, 4 keep); i64 created_s; i32 n_predict; f32 temperature; i32 top_k; f32 top_p; f32 min_p; u64 seed;
// u8 n_stops, each u8 length and bytes; u8 length and bytes of reply_id, then of model_id; u32 n_prompt_ids, each u32; BLAKE2b-256 of all
// that. Nothing behind it. Pure; safe on any bytes. The prompt is private: request_record_deinit overwrites it.
#ifndef HEARTH_COORDINATOR_SHELL_REQUEST_RECORD_H
#define HEARTH_COORDINATOR_SHELL_REQUEST_RECORD_H

#include "base/err.h"
#include "base/sampling.h"
#include "base/wire_type.h"
#include "coordinator/shell/openai_response.h"
#include "proto/msg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_ID_BYTES 16 // random; who has it may read the answer
#define REQUEST_ID_HEX (2 * REQUEST_ID_BYTES)
#define REQUEST_MODEL_CAP 128
#define REQUEST_RECORD_MAX (65u * 1024 * 1024) // bytes: CTX_MAX tokens of four

struct request_record {
	uint8_t id[REQUEST_ID_BYTES];
	// With what it is computed: with anything else, other tokens may come.
	uint8_t model_hash[HASH_BYTES];
	uint32_t canon_version;
	enum wire_type wire;
	// What its answer's form is.
	enum openai_kind kind;
	bool stream, include_usage, hearth, logits_hash;
	bool keep; // goes on without a client
	int64_t created_s;
	char reply_id[OPENAI_ID_CAP];
	char model_id[REQUEST_MODEL_CAP]; // valid UTF-8
	// What is computed.
	int32_t n_predict;
	struct sampling sampling; // with the seed, drawn or given
	int32_t n_stops;
	char stops[STOP_STRINGS_MAX][STOP_STRING_CAP];
	int32_t *prompt_ids; // (n_prompt_ids), owned, none negative
	int32_t n_prompt_ids;
};

// request_record_encode returns the bytes, for free(); NULL without memory.
uint8_t *request_record_encode(const struct request_record *r, size_t *len);
// request_record_decode: ERR_FORMAT: damaged; ERR_UNSUPPORTED: another version of the format; ERR_NOMEM. *r then owns nothing.
MUST_USE enum err request_record_decode(const uint8_t *data, size_t len, struct request_record *r, struct errmsg *em);
void request_record_deinit(struct request_record *r); // safe on zeroed memory

void request_id_hex(const uint8_t id[REQUEST_ID_BYTES], char out[REQUEST_ID_HEX + 1]);
// request_id_parse takes exactly what request_id_hex gives.
MUST_USE bool request_id_parse(const char *text, uint8_t id[REQUEST_ID_BYTES]);

#endif
