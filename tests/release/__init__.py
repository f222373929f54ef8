"""Release: `python -m release build FOLDER` builds all artefacts, `check FOLDER` also installs and runs them."""
