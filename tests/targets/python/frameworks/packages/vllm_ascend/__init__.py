# SPDX-License-Identifier: MulanPSL-2.0
