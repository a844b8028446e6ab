"""From a job that does not fit to plans that do, each priced by the memory model."""
