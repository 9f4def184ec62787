#!/bin/sh
# SPDX-License-Identifier: MulanPSL-2.0
# Prolog of slurm.conf, run as root on every node of a job: makes sure that the daemon is there. A
# node without it still runs the job, so this never fails.
systemctl --quiet is-active sonde-daemon.service || systemctl start sonde-daemon.service || :
exit 0
