# Each target sets up what it needs (scripts/setup says out loud what it installs) and then does
# its job. Everything is built in one profile and into one target directory that outlives the
# checkout.
#
#   make run     server on https://127.0.0.1:6443, its data in ./data; further flags: ARGS='--secure-port 7443'
#   make test    every test
#   make test-replication   replicas over three members of etcd (needs Go) and of Kafka (Java, Maven)
#   make test-etcd   plinth etcd beside a real etcd and under etcdctl; moving from etcd and back (needs Go)
#   make test-s3   backups and checkpoints in a real S3-compatible store (needs Go)
#   make test-prometheus   a real Prometheus scrapes; its rules and the dashboard's expressions (needs Go and jq)
#   make lint    formatting, clippy, dependencies, scripts, leftovers
#   make bench   the API and storage workloads, tables and JSON files
#   make build   the plinth binary
#   make dist    tarball, packages, image, hashes of a release, in ./dist
#   make test-dist   what dist makes, installed, upgraded and removed in a Debian (needs root and debootstrap)
#   make install the binary, manual pages and completions below PREFIX (/usr/local; DESTDIR is respected)
#   make docs-site   docs/ as pages, in ./dist/docs
#   make fmt     format the sources

PLINTH_TARGET_DIR ?= $(HOME)/.cache/plinth/target
DATA_DIR ?= ./data
PREFIX ?= /usr/local
BENCH_DIR ?= $(PLINTH_TARGET_DIR)/bench

export PLINTH_TARGET_DIR
export CARGO_TARGET_DIR := $(PLINTH_TARGET_DIR)
# RocksDB comes compiled by `scripts/setup build`. Not `:=`: the directory's name has the compiler's version, and that
# is known when `setup` has installed one.
export ROCKSDB_LIB_DIR = $(shell PLINTH_TARGET_DIR='$(PLINTH_TARGET_DIR)' scripts/rocksdb dir)
export ROCKSDB_STATIC := 1
# rustup puts cargo here, and a shell opened before that does not know it yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)

BINARY := $(PLINTH_TARGET_DIR)/release/plinth
CARGO_FLAGS := --release --locked

.PHONY: run install dist test-dist test test-replication test-etcd test-s3 test-prometheus lint bench build docs-site fmt setup

run: build
	exec $(BINARY) serve --data-dir $(DATA_DIR) $(ARGS)

install: build
	install -D -m 0755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/plinth
	mkdir -p $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(BINARY) man-pages --to $(DESTDIR)$(PREFIX)/share/man/man1
	chmod 0644 $(DESTDIR)$(PREFIX)/share/man/man1/plinth*.1
	$(BINARY) completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/plinth
	@echo "installed $(DESTDIR)$(PREFIX)/bin/plinth"

dist: setup
	scripts/dist all

test-dist: setup
	scripts/test-dist "$$(scripts/dist binary)"

build: setup
	cargo build $(CARGO_FLAGS) --package plinth-server

# The end-to-end tests start the binary that `build` left.
test: build
	PLINTH_BIN=$(BINARY) cargo test $(CARGO_FLAGS) --workspace
	cargo test $(CARGO_FLAGS) --workspace --features plinth-engine/failpoints --test crash --test failure --test full_disk
	cargo test $(CARGO_FLAGS) --package plinth-engine --features loom --lib interleavings

test-replication: build
	scripts/test-replication $(BINARY) $(JOURNALS)

test-etcd: build
	scripts/test-etcd $(BINARY)

test-s3: build
	scripts/test-s3 $(BINARY)

test-prometheus: build
	scripts/test-prometheus $(BINARY)

lint:
	scripts/setup lint
	scripts/lint

bench: build
	scripts/bench $(BINARY) $(BENCH_DIR)

docs-site:
	scripts/setup docs
	$(PLINTH_TARGET_DIR)/tools/bin/mdbook build

fmt: setup
	cargo fmt --all

setup:
	@scripts/setup build
