# Hearth. `make help` lists the targets.
#
# Sources are found by folder: a new file needs no line here. A configuration (compiler, sanitizer, debug, cross, fuzz) has its
# own folder under build/, so that they never mix; the plain one is build/ itself. Objects depend on the flags they were built
# with, and the library on the list of its members: a changed Makefile or a removed file rebuilds what it must, nothing else.

CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
DEBUG ?=
SAN ?=
CROSS ?=
FUZZ ?=
V ?=

ifneq ($(FUZZ),)
CC := clang
SAN := address,undefined
endif

comma := ,
empty :=
CONFIG := $(if $(CROSS),-$(CROSS))$(if $(FUZZ),-fuzz,$(if $(filter-out gcc,$(CC)),-$(notdir $(CC)))$(if $(SAN),-$(subst $(comma),-,$(SAN))))$(if $(DEBUG),-debug)
B := build$(if $(CONFIG),/$(patsubst -%,%,$(CONFIG)))
Q := $(if $(V),,@)
AR := ar
ifneq ($(CROSS),)
CC := $(CROSS)-linux-gnu-gcc
AR := $(CROSS)-linux-gnu-ar
ARCH := $(CROSS)
else
ARCH := $(shell uname -m)
endif

LIB_DIRS := base kernels model engine proto net flow partition coordinator coordinator/shell node node/shell sim sim/shell \
	blocks blocks/shell
CLI_SRCS := cli/main.c
LIB_SRCS := $(filter-out $(CLI_SRCS),$(foreach d,$(LIB_DIRS) cli,$(wildcard $(d)/*.c)))
ifneq ($(ARCH),x86_64)
LIB_SRCS := $(filter-out %_avx2.c %_avx512.c,$(LIB_SRCS))
endif
ifneq ($(ARCH),aarch64)
LIB_SRCS := $(filter-out %_neon.c,$(LIB_SRCS))
endif
PROTO := $(wildcard proto/*.proto)
PROTO_C := $(PROTO:%.proto=$(B)/gen/%.pb-c.c)
TEST_SRCS := $(wildcard tests/*/test_*.c)
FUZZ_SRCS := $(wildcard tests/fuzz/fuzz_*.c)
SUPPORT_SRCS := $(wildcard tests/support/*.c)

# -Wcast-qual with gcc only: the initialisers that protoc-c generates cast const away, which clang reports at each use.
WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings \
	-Wvla -Wundef $(if $(findstring clang,$(CC)),,-Wcast-qual -Wno-format-truncation)
# -isystem: what protoc-c writes gives no warnings; -MD, because -MMD would leave its headers out of the dependencies.
CPPFLAGS += -I. -isystem $(B)/gen -D_GNU_SOURCE
# A sanitizer takes the place of fortification, which would hide calls from it.
OPT := $(if $(DEBUG),-O1 -DHEARTH_DEBUG,$(if $(SAN),-O1,-O3 -D_FORTIFY_SOURCE=2))
SAN_FLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
# -ffp-contract=off: "a*b+c" stays two roundings everywhere (kernels/canonical.h, rule 1). -fno-math-errno changes no bit.
# -ffunction-sections: the linker drops what nothing calls, and tools/tidy.py sees what each function calls.
CFLAGS_ALL := -std=c11 -g -MD -MP -fPIE -ffp-contract=off -fno-math-errno -fstack-protector-strong -ffunction-sections \
	$(WARN) $(OPT) $(SAN_FLAGS) $(if $(FUZZ),-fsanitize=fuzzer-no-link) $(CFLAGS)
LDFLAGS_ALL := -pie -Wl,-z,relro,-z,now -Wl,--gc-sections $(SAN_FLAGS) $(LDFLAGS)
LDLIBS := -lnng -lmicrohttpd -ljansson -lsqlite3 -lprotobuf-c -lpcre2-8 -lsodium -lqrencode -lzstd -lpthread -lm

LIB_OBJS := $(LIB_SRCS:%.c=$(B)/obj/%.o) $(PROTO_C:$(B)/gen/%.c=$(B)/obj/gen/%.o)
CLI_OBJS := $(CLI_SRCS:%.c=$(B)/obj/%.o)
SUPPORT_OBJS := $(SUPPORT_SRCS:%.c=$(B)/obj/%.o)
LIB := $(B)/libhearth.a
BIN := $(B)/bin/hearth
TESTS := $(TEST_SRCS:%.c=$(B)/%)
FUZZERS := $(FUZZ_SRCS:tests/fuzz/%.c=$(B)/bin/%)

PYTHON := build/venv/bin/python
MODEL := build/models/SmolLM2-135M-Instruct.Q4_1.gguf

.PHONY: all demo check test test-long fuzz bench oracle tidy format clean distclean help setup model venv unit-binaries fuzz-binaries
.DELETE_ON_ERROR:
.SECONDARY: $(PROTO_C)
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules
all: $(BIN)

help:
	@echo 'make            build/bin/hearth'
	@echo 'make demo       install what is missing, build, fetch a small model, answer a question through three nodes'
	@echo 'make check      install what is missing, then everything CI runs (about half an hour on two cores)'
	@echo 'make test       unit and integration tests of the plain build'
	@echo 'make test-long  every case of recovery, and all integration tests under sanitizers (about an hour on two cores)'
	@echo 'make fuzz       each fuzz target for 60 s (FUZZ_SECONDS=n)'
	@echo 'make bench      the scripts in bench/'
	@echo 'make oracle     compare with independent implementations (tools/oracle/)'
	@echo 'make tidy       include rules, purity of the cores, file sizes and the like'
	@echo 'make format     clang-format over the lines of C files that are not committed yet'
	@echo 'make model      fetch the demo model into build/models/'
	@echo 'make setup      install the Debian packages that build, model and tests need'
	@echo 'make clean      remove what was built; distclean also the model and the Python environment'
	@echo
	@echo 'Knobs: DEBUG=1  SAN=address,undefined|thread  CC=clang  CROSS=aarch64  V=1 (show commands)'
	@echo 'Each combination builds in its own folder under build/.'

# What an object was compiled with, and what the library is made of, as files that change only when their contents do.
ifneq ($(filter-out help clean distclean setup format model venv tidy demo check test test-long fuzz bench oracle,$(or $(MAKECMDGOALS),all)),)
FLAGS_NOW := $(strip $(CC) $(CPPFLAGS) $(CFLAGS_ALL) $(LDFLAGS_ALL))
MEMBERS_NOW := $(strip $(LIB_OBJS))
$(shell mkdir -p $(B))
ifneq ($(strip $(file <$(B)/.flags)),$(FLAGS_NOW))
$(file >$(B)/.flags,$(FLAGS_NOW))
endif
ifneq ($(strip $(file <$(B)/.members)),$(MEMBERS_NOW))
$(file >$(B)/.members,$(MEMBERS_NOW))
endif
endif

# Says which library is missing, and its package, before the compiler says "nng/nng.h: No such file or directory" forty times.
$(B)/.libs: tools/check_libs.sh $(B)/.flags
	$(Q)CC='$(CC)' CROSS='$(CROSS)' sh tools/check_libs.sh $(LDLIBS)
	@touch $@

$(BIN): $(CLI_OBJS) $(LIB)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(CLI_OBJS) $(LIB) $(LDLIBS)

$(LIB): $(LIB_OBJS) $(B)/.members
	@mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcs $@ $(LIB_OBJS)

# Kernels are no parser: fuzz targets take them as they are, which saves minutes of compiling.
$(B)/obj/%_avx2.o: EXTRA := -mavx2 -mfma -mf16c $(if $(FUZZ),-fno-sanitize=all)
$(B)/obj/%_avx512.o: EXTRA := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c $(if $(FUZZ),-fno-sanitize=all)
$(B)/obj/gen/%.o: EXTRA := -w

$(B)/obj/gen/%.o: $(B)/gen/%.c $(B)/.flags
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) $(EXTRA) -c -o $@ $<

$(B)/obj/%.o: %.c $(B)/.flags | $(PROTO_C) $(B)/.libs
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) $(EXTRA) -c -o $@ $<

$(B)/gen/%.pb-c.c: %.proto | $(B)/.libs
	@mkdir -p $(@D)
	@echo "  PROTO $<"
	$(Q)protoc-c --c_out=$(B)/gen $<

# A test links the library, and the helpers in tests/support/.
$(B)/tests/%: tests/%.c $(LIB) $(SUPPORT_OBJS)
	@mkdir -p $(@D)
	@echo "  TEST  $@"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) $(LDFLAGS_ALL) -o $@ $< $(SUPPORT_OBJS) $(LIB) -lcmocka $(LDLIBS)

$(B)/bin/fuzz_%: tests/fuzz/fuzz_%.c $(LIB) $(SUPPORT_OBJS)
	@mkdir -p $(@D)
	@echo "  FUZZ  $@"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) -fsanitize=fuzzer $(LDFLAGS_ALL) -o $@ $< $(SUPPORT_OBJS) $(LIB) $(LDLIBS)

unit-binaries: $(TESTS)
ifneq ($(FUZZ),)
fuzz-binaries: $(FUZZERS)
endif

setup:
	@sh tools/setup.sh build model check

venv: tools/requirements.txt
	@sh tools/venv.sh tools/requirements.txt

model:
	@sh tools/model.sh

# Built on every core, unless make was told how many.
demo:
	@sh tools/setup.sh build model
	@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc)) all
	@$(MAKE) --no-print-directory model
	@sh tools/demo.sh

check:
	@sh tools/setup.sh build model check
	@$(MAKE) --no-print-directory model
	@python3 tools/run_tests.py all

test:
	@python3 tools/run_tests.py build units integration

test-long:
	@python3 tools/run_tests.py recovery-long big-model integration-asan

FUZZ_SECONDS ?= 60
fuzz:
	@python3 tools/run_tests.py fuzz --fuzz-seconds $(FUZZ_SECONDS)

tidy: all
	@python3 tools/tidy.py

bench: all model venv
	@set -e; for f in $(wildcard bench/*_bench.sh bench/*_bench.py); do echo "== $$f"; \
		case $$f in *.py) $(PYTHON) $$f;; *) sh $$f;; esac; done

oracle: all model
	@sh tools/oracle_all.sh

# Only lines that differ from HEAD: over whole files it would undo what was aligned by hand.
format:
	@git clang-format -f --extensions c,h

# Everything but the model and the Python environment, which cost a download.
clean:
	rm -rf $(filter-out build/models build/venv,$(wildcard build/* build/.[a-z]*))

distclean:
	rm -rf build

-include $(LIB_OBJS:.o=.d) $(CLI_OBJS:.o=.d) $(SUPPORT_OBJS:.o=.d) $(TESTS:%=%.d) $(FUZZERS:%=%.d)
