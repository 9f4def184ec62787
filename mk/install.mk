# SPDX-License-Identifier: MulanPSL-2.0
# Where things go: make install PREFIX=… DESTDIR=…, and how they leave again.

UNITS := $(wildcard packaging/systemd/*)
SHARED := packaging/README.md $(wildcard $(foreach d,logrotate sysctl slurm kubernetes prometheus grafana,packaging/$(d)/*))
PACKAGES := $(PYTHON_SRC:src/%=%) $(patsubst $(O)/%,%,$(EXTENSION) $(MONITOR_EXTENSION))
INSTALLED := $(addprefix bin/,sonde msmemscope dynolog dyno python_stack_sniffer py_stack_snap) \
	$(addprefix lib/,$(PACKAGES) libsonde_guest.so $(HOOK_LIBS:%=%.so)) \
	$(wildcard include/sonde/*.h) $(patsubst docs/man/%,share/man/man1/%,$(wildcard docs/man/*.1)) \
	$(UNITS:packaging/systemd/%=lib/systemd/system/%) $(SHARED:packaging/%=share/sonde/%)

.PHONY: install install-python install-packaging install-sim uninstall
install: guest own install-python install-packaging
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib include/sonde share/man/man1)
	install -m 755 $(O)/bin/sonde $(O)/bin/msmemscope $(DESTDIR)$(PREFIX)/bin
	ln -sf sonde $(DESTDIR)$(PREFIX)/bin/dynolog
	ln -sf sonde $(DESTDIR)$(PREFIX)/bin/dyno
	ln -sf sonde $(DESTDIR)$(PREFIX)/bin/python_stack_sniffer
	ln -sf sonde $(DESTDIR)$(PREFIX)/bin/py_stack_snap
	install -m 755 $(O)/lib/libsonde_guest.so $(HOOK_LIBS:%=$(O)/lib/%.so) $(DESTDIR)$(PREFIX)/lib
	$(if $(wildcard include/sonde/*.h),install -m 644 include/sonde/*.h $(DESTDIR)$(PREFIX)/include/sonde)
	$(if $(wildcard docs/man/*.1),install -m 644 docs/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1)

# Beside the libraries, for every Python: PYTHONPATH=PREFIX/lib/python. With PYTHON_SITE=directory
# one interpreter finds them by itself, through a file in that directory of its packages.
install-python: python
	@for f in $(PACKAGES); do \
		install -D -m $$(test -x $(O)/$$f && echo 755 || echo 644) $(O)/$$f \
			$(DESTDIR)$(PREFIX)/lib/$$f || exit 1; \
	done
ifneq ($(PYTHON_SITE),)
	install -d $(DESTDIR)$(PYTHON_SITE)
	echo $(PREFIX)/lib/python >$(DESTDIR)$(PYTHON_SITE)/sonde.pth
endif

# Units name the programs where this puts them; everything else is for the administrator to pick.
install-packaging:
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,lib/systemd/system share/sonde)
	@for u in $(notdir $(UNITS)); do \
		sed 's,/usr/local/bin/,$(PREFIX)/bin/,' packaging/systemd/$$u \
			>$(DESTDIR)$(PREFIX)/lib/systemd/system/$$u || exit 1; \
		chmod 644 $(DESTDIR)$(PREFIX)/lib/systemd/system/$$u; \
	done
	@for f in $(SHARED:packaging/%=%); do \
		install -D -m $$(test -x packaging/$$f && echo 755 || echo 644) packaging/$$f \
			$(DESTDIR)$(PREFIX)/share/sonde/$$f || exit 1; \
	done

install-sim: sim
	install -d $(DESTDIR)$(PREFIX)/libexec/sonde-sim
	install -m 755 $(SIM_LIBS:%=$(O)/sim/%.so) $(SIM_PROGS:%=$(O)/sim/%) \
		$(DESTDIR)$(PREFIX)/libexec/sonde-sim
	ln -sf libnvidia-ml.so $(DESTDIR)$(PREFIX)/libexec/sonde-sim/libnvidia-ml.so.1

# Also what Python has kept of the packages when it imported them.
PACKAGE_DIRS := $(patsubst %/,lib/%,$(sort $(dir $(PACKAGES))))
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(INSTALLED))
	rm -rf $(DESTDIR)$(PREFIX)/libexec/sonde-sim $(PACKAGE_DIRS:%=$(DESTDIR)$(PREFIX)/%/__pycache__)
	$(if $(PYTHON_SITE),rm -f $(DESTDIR)$(PYTHON_SITE)/sonde.pth)
	@printf '%s\n' $(addprefix $(DESTDIR)$(PREFIX)/,$(PACKAGE_DIRS) lib/python/putils lib/python include/sonde \
		$(patsubst packaging/%/,share/sonde/%,$(sort $(dir $(SHARED)))) share/sonde) | \
		sort -r | xargs rmdir 2>/dev/null || true
