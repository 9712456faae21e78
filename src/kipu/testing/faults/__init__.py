"""Faults that users met, each as a function that makes it: in files, in calls to the system, in processes, in the power."""
