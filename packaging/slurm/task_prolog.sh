#!/bin/sh
# SPDX-License-Identifier: MulanPSL-2.0
# TaskProlog of slurm.conf: what it prints as "export NAME=value" is in the environment of every
# task. With it, jobs can be traced without a change of theirs.
echo "export KINETO_USE_DAEMON=1"
echo "export MSMONITOR_USE_DAEMON=1"
