# SPDX-License-Identifier: MulanPSL-2.0
# `make check` runs all of them in order (tools/run_checks.py --list); each also runs alone.

.PHONY: check check-quick everything not-sanitized
check check-quick:
	@$(PYTHON) tools/run_checks.py --build $(O) $(if $(filter check-quick,$@),--quick)

everything: all targets $(O)/unit bench-programs soak-programs
# What the sanitizer builds, also by clang, do not compile.
not-sanitized: guest sim python targets $(BENCH_LIBS) $(BENCH_JOBS) $(O)/own/src/cli/main.o \
	$(BENCHES:$(O)/bench/%=$(O)/own/bench/%.o)

.PHONY: check-format format check-layers check-headers check-imports check-python check-docs check-clean check-files
check-format:
	@sh tools/check_format
format:
	@sh tools/check_format --fix
check-layers:
	@$(PYTHON) tools/check_layers.py
check-headers:
	@$(NEED_HEADERS)sh tools/check_headers $(CPPFLAGS) -isystem $(PYTHON_INCLUDE) -std=gnu11 $(WARN)
check-imports: guest
	@$(PYTHON) tools/check_imports.py $(O)/guest tools/banned-imports.txt
check-python:
	@PYTHONPYCACHEPREFIX=$(abspath $(O))/pycache $(PYTHON) -m compileall -q tests tools src packaging
check-docs:
	@$(PYTHON) tools/check_docs.py
check-clean:
	@$(PYTHON) tools/check_clean.py
check-files:
	@$(PYTHON) tools/check_files.py
