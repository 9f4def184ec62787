# SPDX-License-Identifier: MulanPSL-2.0
from device_memory import take


class NPUWorker:
    def __init__(self, runner):
        self.model_runner = runner

    def compile_or_warm_up_model(self):
        take(600_001)
        self.model_runner.capture_model()
        take(600_002)
