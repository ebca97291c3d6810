"""Runs a program built for wasm32-wasip1: cargo's runner for the module's unit tests. Needs PyPI's wasmtime."""

import sys

from wasmtime import Engine, ExitTrap, Linker, Module, Store, WasiConfig

wasi = WasiConfig()
wasi.argv = sys.argv[1:]
wasi.inherit_env()
wasi.inherit_stdout()
wasi.inherit_stderr()

engine = Engine()
store = Store(engine)
store.set_wasi(wasi)
linker = Linker(engine)
linker.define_wasi()
instance = linker.instantiate(store, Module.from_file(engine, sys.argv[1]))
try:
    instance.exports(store)["_start"](store)
except ExitTrap as end:
    sys.exit(end.code)
