# SPDX-License-Identifier: MulanPSL-2.0
# One Makefile, not recursive. A folder is a link unit: a new file in it is built without a word here.
#
#   make                 everything below O=build
#   make check           what CI runs       make check-quick   the same without sanitizer builds
#   make bench           the programs behind every number we state
#   make soak            hours of kills, faults and fuzzing, and a table of what they found
#   make install PREFIX=/usr/local
#
# O=dir  CC=clang  OPT=-O1  SAN=address,undefined | thread  DEBUG=1  WERROR=1

O ?= build
CC = gcc
PREFIX ?= /usr/local
PYTHON ?= python3
VERSION := 0.1.0
MAKEFLAGS += --no-builtin-rules

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings -Wvla \
	-Wpointer-arith -Wformat=2 -Wundef $(if $(WERROR),-Werror)
CPPFLAGS := -Isrc -Iinclude -D_GNU_SOURCE -DSONDE_VERSION='"$(VERSION)"'
OPT ?= -O2
# Sanitizers show lines and nothing else: a tenth less to compile.
CFLAGS := -std=gnu11 $(if $(DEBUG),-O0 -DSONDE_DEBUG,$(OPT)) $(if $(SAN),-g1,-g) $(WARN)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)

.PHONY: all
all: guest own sim

include mk/guest.mk	# libsonde_guest.so, and the libraries that jobs preload
include mk/own.mk	# the program sonde, and the names that lead to it
include mk/python.mk	# packages, and their extensions
include mk/sim.mk	# the simulated vendor stack
include mk/tests.mk	# unit, e2e, fuzz
include mk/bench.mk
include mk/soak.mk	# the kill matrix, fuzzing and benchmarks for hours
include mk/checks.mk	# format, layers, headers, imports, docs
include mk/install.mk

# Only where objects are: a build directory may hold much else (interpreters, environments).
-include $(shell find /dev/null $(wildcard $(addprefix $(O)/,guest own extension simobj targets bench)) \
	-name '*.d' -type f 2>/dev/null)
