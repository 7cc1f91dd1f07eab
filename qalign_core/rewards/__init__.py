"""Reward models behind the `RewardModel` protocol."""
