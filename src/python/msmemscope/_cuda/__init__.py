# SPDX-License-Identifier: MulanPSL-2.0
"""What frameworks say about their own pools on GPUs."""
