# SPDX-License-Identifier: MulanPSL-2.0
"""Names and order of calls of verl's task runner."""


class TaskRunner:
    def add_actor_rollout_worker(self, config):
        return object, "ray worker group"

    def add_critic_worker(self, config):
        pass

    def add_reward_model_worker(self, config):
        pass

    def add_ref_policy_worker(self, config, ref_policy_cls):
        if config == "refuse":
            raise KeyError("no policy")

    def run(self, config):
        cls, _ = self.add_actor_rollout_worker(config)
        self.add_critic_worker(config)
        self.add_reward_model_worker(config)
        self.add_ref_policy_worker(config, cls)
        return "done"
