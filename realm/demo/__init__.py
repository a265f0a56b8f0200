"""The main job, told step by step with its evidence, on a pocket realm of its own."""
