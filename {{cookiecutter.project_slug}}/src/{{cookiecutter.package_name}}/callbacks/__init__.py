"""CALLBACKS: key in YAML and on the command line -> class, from every file of this folder."""

import pkgutil
from importlib import import_module

from lightning import Callback


def _the_class(module_name: str) -> type[Callback]:
    module = import_module(f".{module_name}", __name__)
    (found,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Callback) and value.__module__ == module.__name__
    )
    return found


CALLBACKS = {module.name: _the_class(module.name) for module in pkgutil.iter_modules(__path__)}
