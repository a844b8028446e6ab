"""One file per remedy: a function from job to job."""
