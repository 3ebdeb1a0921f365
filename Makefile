# Hearth. `make help` lists the targets.
#
# Sources are found by folder: a new file needs no line here. A configuration (compiler, sanitizer, debug, cross) has its
# own folder under build/, so that they never mix; the plain one is build/ itself.

CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
DEBUG ?=
SAN ?=
CROSS ?=
V ?=

comma := ,
CONFIG := $(if $(CROSS),-$(CROSS))$(if $(filter-out gcc,$(CC)),-$(notdir $(CC)))$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(DEBUG),-debug)
B := build$(if $(CONFIG),/$(patsubst -%,%,$(CONFIG)))
Q := $(if $(V),,@)
ifeq ($(CROSS),aarch64)
CC := aarch64-linux-gnu-gcc
ARCH := aarch64
QEMU := qemu-aarch64-static -cpu max
else
ARCH := $(shell uname -m)
QEMU :=
endif

LIB_DIRS := base kernels model engine proto net flow partition coordinator coordinator/shell node node/shell sim sim/shell blocks
CLI_SRCS := $(wildcard cli/*.c)
LIB_SRCS := $(foreach d,$(LIB_DIRS),$(wildcard $(d)/*.c))
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

WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings \
	-Wvla -Wundef -Wcast-qual
CPPFLAGS += -I. -I$(B)/gen -D_GNU_SOURCE
# -ffp-contract=off: "a*b+c" stays two roundings everywhere (kernels/canonical.h, rule 1). -fno-math-errno changes no bit.
CFLAGS_ALL := -std=c11 -g -MMD -MP -ffp-contract=off -fno-math-errno -fstack-protector-strong $(WARN) \
	$(if $(DEBUG),-O1 -DHEARTH_DEBUG,-O3) \
	$(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all) $(CFLAGS)
LDFLAGS_ALL := $(if $(SAN),-fsanitize=$(SAN)) $(LDFLAGS)
LDLIBS := -lnng -lmicrohttpd -ljansson -lsqlite3 -lprotobuf-c -lpcre2-8 -lsodium -lpthread -lm

LIB_OBJS := $(LIB_SRCS:%.c=$(B)/obj/%.o) $(PROTO_C:$(B)/gen/%.c=$(B)/obj/gen/%.o)
CLI_OBJS := $(CLI_SRCS:%.c=$(B)/obj/%.o)
LIB := $(B)/libhearth.a
BIN := $(B)/bin/hearth
TESTS := $(TEST_SRCS:%.c=$(B)/%)

.PHONY: all demo check test fuzz bench oracle tidy format clean distclean help deps unit-binaries
all: $(BIN)

$(BIN): $(CLI_OBJS) $(LIB)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(CLI_OBJS) $(LIB) $(LDLIBS)

$(LIB): $(LIB_OBJS)
	@mkdir -p $(@D)
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/obj/%_avx2.o: EXTRA := -mavx2 -mfma -mf16c
$(B)/obj/%_avx512.o: EXTRA := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c
$(B)/obj/gen/%.o: EXTRA := -w

$(B)/obj/gen/%.o: $(B)/gen/%.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) $(EXTRA) -c -o $@ $<

$(B)/obj/%.o: %.c | $(PROTO_C)
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) $(EXTRA) -c -o $@ $<

$(B)/gen/%.pb-c.c: %.proto
	@mkdir -p $(@D)
	@echo "  PROTO $<"
	$(Q)protoc-c --c_out=$(B)/gen $<

# A test links the library, and any helper beside it in tests/support/.
SUPPORT_OBJS := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tests/support/*.c))
$(B)/tests/%: tests/%.c $(LIB) $(SUPPORT_OBJS)
	@mkdir -p $(@D)
	@echo "  TEST  $@"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) $(LDFLAGS_ALL) -o $@ $< $(SUPPORT_OBJS) $(LIB) -lcmocka $(LDLIBS)

unit-binaries: $(TESTS)

clean:
	rm -rf build/obj build/gen build/tests build/bin build/libhearth.a build/gcc* build/clang* build/aarch64* build/address* build/thread* build/fuzz

-include $(shell find $(B) -name '*.d' 2>/dev/null)
