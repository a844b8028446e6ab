"""Run by Alembic: migrates over the connection that :func:`oomdoc.store.engine.migrate` hands in."""

from alembic import context

from oomdoc.store.schema import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, render_as_batch=True)
context.run_migrations()
