#!/usr/bin/env python3
"""Deliberate bugs, built one at a time into a copy of the tree: the simulator must catch each within its first 1,000 seeds.

    python3 tests/sim/bugs.py [--only NAME] [--seeds N]

Each bug is one edit of a source file, none of it in the shipped program. Prints TAP. A bug whose text is not found any more fails: the code
has changed, and the edit must follow it. Run from the root of a tree that is built (make).
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COPY = ROOT / "build/bugs"

# name: (file, what stands there, what the bug makes of it)
BUGS = {
    "a credit for a cancelled step is not given back": (
        "node/stage.c",
        "		give_credit(n, w->round, w->relayed, fx);\n}\n\nvoid stage_drop_running",
        "		(void)fx;\n}\n\nvoid stage_drop_running"),
    "a member of a group reads the contributions of another exchange": (
        "node/node_group.c",
        "	f->u.resume.which = turns_way_here(n);\n",
        "	f->u.resume.which = turns_way_of(n, g->n_passed + 1, g->exchange + 1);\n"),
    "a member of a group does not wait for the last one": (
        "node/node_group.c",
        "		if (turns_sends_to(n, i, n->plan.group.self, g->exchange) && !p->is_whole)\n			return;\n",
        "		if (turns_sends_to(n, i, n->plan.group.self, g->exchange) && !p->is_whole && i + 1 < n->plan.group.n_members)\n			return;\n"),
    "a ring's parts take turns in too few buffers": (
        "node/turns.c",
        "		return exchange == 1 ? g->n_members : exchange % g->n_members;\n",
        "		return exchange == 1 ? g->n_members : exchange % (g->n_members - 1);\n"),
    "a member of a ring takes what comes a hop too early": (
        "node/turns.c",
        "	while (way < d && is_hop(n, exchange - way))\n		way++;\n	return way;\n",
        "	while (way < d && is_hop(n, exchange - way))\n		way++;\n	return way - (way > 1);\n"),
    "a member of a group takes a part of an old plan": (
        "node/node_group.c",
        "	if (p.epoch.v != n->plan.epoch.v || n->group.is_cut)\n",
        "	if (n->group.is_cut)\n"),
    "a member of a group sends everybody what is for the first": (
        "node/parts.c",
        "		f.off = g->to[dst].at + at;\n",
        "		f.off = g->to[0].at + at;\n"),
    "a lost link between members is told to nobody": (
        "node/node_links.c",
        "	} else if (is_plan_peer(n, gone.peer)) {\n",
        "	} else if (node_peer_is(&n->plan.prev, gone.peer) || node_peer_is(&n->plan.next, gone.peer)) {\n"),
    "the coordinator passes a part on to the wrong member": (
        "coordinator/ring.c",
        "	int32_t dst = member_of_seat(c, ch, (struct plan_seat){m->stage, p.dst});\n",
        "	int32_t dst = member_of_seat(c, ch, (struct plan_seat){m->stage, 0});\n"),
    "an acknowledgement of a step is dropped": (
        "node/stage.c",
        "	if (slot->session.v != s.session.v) { // cancelled, or its slot serves another already\n		give_credit(n, round, relayed, fx);\n",
        "	if (slot->session.v != s.session.v) { // cancelled, or its slot serves another already\n"),
    "a node does not check a step's epoch": (
        "node/stage.c",
        "	if (s.epoch.v != n->plan.epoch.v)\n		return; // of an old plan, or of one not here yet: its sender will be told\n",
        ""),
    "the head takes a stale frame": (
        "coordinator/ring.c",
        "	if (ch == NULL || st.epoch.v != ch->plan.epoch.v || ch->plan_state != PLAN_READY)\n		return;\n	if (st.dst_span",
        "	if (ch == NULL || ch->plan_state != PLAN_READY)\n		return;\n	if (st.dst_span"),
    "a later round begins an answer anew": (
        "node/stage.c",
        "	bool binds = (s.flags & STEP_FIRST) != 0 && round == 0;\n",
        "	bool binds = (s.flags & STEP_FIRST) != 0;\n"),
    "the replay of an answer begins one position late": (
        "coordinator/sessions.c",
        "	s->replay_to = s->pos_back > s->replay_to ? s->pos_back : s->replay_to;",
        "	s->replay_to = s->pos_back > s->replay_to ? s->pos_back + 1 : s->replay_to;"),
    "a replay shows a token again": (
        "coordinator/sessions.c",
        "	s->pos_back = s->n_embedded = 0;",
        "	if (s->n_tokens > s->n_prompt && s->replay_to == s->n_tokens)\n		s->n_tokens--;\n	s->pos_back = s->n_embedded = 0;"),
    "a token is shown twice": (
        "coordinator/sessions.c",
        "	s->tokens[s->n_tokens++] = token;\n",
        "	s->tokens[s->n_tokens++] = token;\n	if (s->n_tokens % 16 == 0 && s->n_tokens < s->n_max)\n		*coord_fx(fx, COORD_FX_EMIT) = *f;\n"),
    "a wake-up is lost when a link has a successor": (
        "node/stage.c",
        "	r->draining = r->draining && r->credits_out < n->plan.hop_credits;\n",
        ""),
    "rows from disk go to the wrong rows of a buffer": (
        "node/kept.c",
        "		.row = pos > n_mem ? 0 : n_mem - pos};\n	uint32_t id",
        "		.row = 0};\n	uint32_t id"),
    "a step does not wait for its rows from disk": (
        "node/stage.c",
        "r->out.n > 0 && !n->work[r->out.at[0]].fetching && r->credits_out",
        "r->out.n > 0 && r->credits_out"),
    "a wake-up is lost when the engine is done": (
        "node/node.c",
        "	if (n->has_next && !stage_has_forward(n) && n->load_id == 0) {\n",
        "	if (n->has_next && !stage_has_forward(n) && n->load_id == 0 && ev->type == NODE_EV_LOADED) {\n"),
    "a buffer of the head is freed twice": (
        "coordinator/sessions.c",
        "		if (!is_current || s->id.v != c->embed_id[i].v) {\n			sessions_buf_give(c, c->embed[i].buf);\n",
        "		if (!is_current || s->id.v != c->embed_id[i].v) {\n			sessions_buf_give(c, c->embed[i].buf);\n			sessions_buf_give(c, c->embed[i].buf);\n"),
    "a buffer is free again while the engine works on it": (
        "node/stage.c",
        "		if (n->work[i].state == WORK_RUNNING && n->work[i].step.slot == slot)\n			n->work[i].dead = true;",
        "		if (n->work[i].state == WORK_RUNNING && n->work[i].step.slot == slot)\n			n->work[i].state = WORK_FREE;"),
    "a slot has two owners": (
        "coordinator/admission.c",
        "	while (slot < n && owners[slot] >= 0)\n",
        "	while (slot + n < n && owners[slot] >= 0)\n"),
    "the way of a step is chosen anew for each": (
        "node/stage.c",
        "		.direct = n->slots[s->slot].direct, .relayed = relayed};",
        "		.direct = node_next_direct(n) != NULL, .relayed = relayed};"),
    "two steps of one sequence share a batch": (
        "node/stage.c",
        "		taken[s->slot] = true;\n",
        ""),
    "a plan counts on layers that are still to be fetched": (
        "coordinator/prefetch.c",
        "	return !m->hello.fetches || (held_covers(&m->held, &part, &st->layers) && !lacks_output);",
        "	return m->used || (held_covers(&m->held, &part, &st->layers) && !lacks_output);"),
    "a load does not wait for the end of a fetch": (
        "node/node.c",
        "	n->load_waits = n->prepare_id != 0;\n",
        "	n->load_waits = false;\n"),
    "a block's hash is not looked at": (
        "blocks/manifest.c",
        "	return memcmp(hash, m->hashes + (size_t)i * BLOCK_HASH_BYTES, BLOCK_HASH_BYTES) == 0;",
        "	return hash[0] == hash[0];"),
    "what a lost source was asked for is not asked again": (
        "blocks/fetch.c",
        "	if (s == NULL || !s->is_up)\n		return;\n	give_back(f, s);\n	s->is_up = false;\n	note_members(f);\n}",
        "	if (s == NULL || !s->is_up)\n		return;\n	s->is_up = false;\n	note_members(f);\n}"),
    "a write is not synced": (
        "sim/coord_host.c",
        "	case SIM_DISK_OK: break;\n	}\n	sim_db_apply(&db->disk, d);\n	sim_db_apply(&db->synced, d);\n",
        "	case SIM_DISK_OK: break;\n	}\n	sim_db_apply(&db->disk, d);\n"),
    "an operator is told of a revocation before it is on disk": (
        "coordinator/members.c",
        "	w->member_epoch = next_epoch(c);\n",
        "	w->member_epoch = next_epoch(c);\n	coord_answer(fx, ticket, OK, \"%s\", \"\");\n	w->ticket = 0;\n"),
    "a revoked node keeps its links": (
        "node/node.c",
        "	forget_peer(n, who, fx);\n",
        "	(void)forget_peer;\n"),
    "a revoked key is taken again": (
        "coordinator/members.c",
        "	memset(&c->members[i], 0, sizeof c->members[i]);\n	c->members[i].chain",
        "	c->members[i].chain"),
    "a step goes out under another chain's epoch": (
        "coordinator/ring.c",
        "		.epoch = ch->plan.epoch,\n		.session = s->id,",
        "		.epoch = c->chains[c->n_chains - 1].plan.epoch,\n		.session = s->id,"),
    "a credit goes to another chain": (
        "coordinator/sessions.c",
        "		struct chain *ch = &c->chains[c->sample_chain[i]];\n",
        "		struct chain *ch = &c->chains[c->sample_chain[0]];\n"),
    "an answer that moves leaves its slot taken": (
        "coordinator/admission.c",
        "	c->chains[s->chain].slot_owner[s->slot] = -1;\n	take_slot",
        "	take_slot"),
    "silence is never death": (
        "flow/liveness.c",
        "	if (now_ns - l->heard_ns >= limits->dead_after_ns)\n		return LIVENESS_DEAD;\n",
        ""),
    "a broken link between neighbours is not told": (
        "node/node_links.c",
        "		node_report_next_link(n, true, fx);\n",
        "		node_report_next_link(n, false, fx);\n"),
}


def copy_tree():
    """A copy of what git knows and of what is built, times kept, so that make builds only what a bug changes."""
    shutil.rmtree(COPY, ignore_errors=True)
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
    if len(names) < 10:
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file() and "build" not in p.relative_to(ROOT).parts]
    for n in filter(None, names):
        if n.startswith(("tests/", "docs/", "bench/", "web/")) or not (ROOT / n).is_file():
            continue
        (COPY / n).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / n, COPY / n)
    for n in ("obj", "gen", "bin", "libhearth.a", ".flags", ".members", ".libs"):
        source, target = ROOT / "build" / n, COPY / "build" / n
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, copy_function=shutil.copy2)
        elif source.exists():
            shutil.copy2(source, target)


def make():
    p = subprocess.run(["make", "-s", "-j2", "all"], cwd=COPY, capture_output=True, text=True)
    return "" if p.returncode == 0 else p.stdout + p.stderr


def catch(name, n_seeds):
    """Returns (whether it was caught, what to say)."""
    path, good, bad = BUGS[name]
    file = COPY / path
    text = file.read_text()
    if text.count(good) != 1:
        return False, "the text of this bug stands %d times in %s" % (text.count(good), path)
    file.write_text(text.replace(good, bad))
    try:
        errors = make()
        if errors:
            return False, "it does not build: %s" % errors
        last = 0
        while last < n_seeds:
            first, last = last + 1, min(n_seeds, last + 20 if last < 100 else last + 100) # most are caught early
            p = subprocess.run(["build/bin/hearth", "sim", "check", "--seeds", "%d..%d" % (first, last), "--json"], cwd=COPY,
                               capture_output=True, text=True)
            failures = json.loads(p.stdout)["failures"]
            if failures:
                said = [l for l in p.stderr.splitlines() if l.startswith("FAILED")]
                return True, "seed %d: %s" % (failures[0], said[0] if said else "")
        return False, "not caught within %d seeds" % n_seeds
    finally:
        file.write_text(text)


def main():
    p = argparse.ArgumentParser(description="Deliberate bugs that the simulator must catch.")
    p.add_argument("--only", default="", help="only bugs whose name contains this")
    p.add_argument("--seeds", type=int, default=1000)
    args = p.parse_args()
    names = [n for n in BUGS if args.only in n]
    os.chdir(ROOT)
    copy_tree()
    errors = make()
    if errors:
        print("Bail out! the copy does not build: %s" % errors)
        return 1
    print("1..%d" % len(names), flush=True)
    n_missed = 0
    for i, name in enumerate(names, 1):
        caught, words = catch(name, args.seeds)
        n_missed += not caught
        print("# %s\n%sok %d - %s" % (words, "" if caught else "not ", i, name), flush=True)
    make()  # the copy is whole again for the next run
    return 1 if n_missed else 0


if __name__ == "__main__":
    sys.exit(main())
