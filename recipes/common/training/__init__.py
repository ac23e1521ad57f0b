"""Around a training step: guarded rewards, step advantages, callbacks, engine, trackers."""
