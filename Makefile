# mics - build. `make help` lists the targets.

BUILD ?= build
ifeq ($(origin CC),default)
CC := gcc
endif
MARCH ?= native
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2
CFLAGS ?= -O2 -g
SAN ?=
PKGS := jansson hwloc openblas libxxhash ompi-c
MSGPACK := $(shell pkg-config --exists msgpack-c && echo msgpack-c || echo msgpack)
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) $(MSGPACK))
PKG_LIBS := $(shell pkg-config --libs $(PKGS) $(MSGPACK))
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -DMICS_HAVE_MPI=1 -Ilib -Ikernels -Itests/unit $(WARN) $(CFLAGS) $(SAN) $(PKG_CFLAGS)

LIB_SRC := $(wildcard lib/base/*.c lib/doc/*.c lib/machine/*.c lib/cluster/*.c lib/model/*.c lib/plan/*.c lib/ckpt/*.c lib/train/*.c kernels/host/*.c)
CLI_SRC := $(wildcard lib/cli/*.c)
CMD_SRC := $(wildcard cmd/mics-*.c)
UNIT_SRC := $(wildcard tests/unit/test_*.c tests/parity/test_*.c)
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(BUILD)/%.o)
PROGRAMS := $(CMD_SRC:cmd/%.c=$(BUILD)/%)
UNITS := $(UNIT_SRC:tests/%.c=$(BUILD)/tests/%)

all: $(PROGRAMS)
tests-build: $(UNITS)

$(BUILD)/kernels/%.o: ALL_CFLAGS += -O3 -march=$(MARCH) -fno-math-errno -fno-trapping-math
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# The catalogue of instances is compiled in, as bytes.
$(BUILD)/gen/instances.inc: share/mics/instances.json
	@mkdir -p $(@D)
	od -An -v -tx1 $< | sed 's/ \(..\)/0x\1,/g' >$@
$(BUILD)/lib/cluster/catalogue_data.o: ALL_CFLAGS += -I$(BUILD)/gen
$(BUILD)/lib/cluster/catalogue_data.o: $(BUILD)/gen/instances.inc

$(BUILD)/libmics.a: $(LIB_OBJ)
	rm -f $@ && ar rcs $@ $^
$(BUILD)/libcli.a: $(CLI_OBJ)
	rm -f $@ && ar rcs $@ $^

$(BUILD)/mics-%: $(BUILD)/cmd/mics-%.o $(BUILD)/libcli.a $(BUILD)/libmics.a
	$(CC) $(ALL_CFLAGS) -o $@ $^ $(PKG_LIBS) -lpthread -lm
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/libcli.a $(BUILD)/libmics.a
	$(CC) $(ALL_CFLAGS) -o $@ $^ $(PKG_LIBS) -lpthread -lm

clean:
	rm -rf $(BUILD)

.PHONY: all tests-build clean
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
