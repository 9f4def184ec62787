# SPDX-License-Identifier: MulanPSL-2.0
"""What several modules of putils use: chips, processors, workbooks."""
