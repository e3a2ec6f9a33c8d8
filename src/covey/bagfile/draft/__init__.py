"""From a sheet to a bag that lacks only its files: parameters, command, resources, and the tasks
that follow from them. It reads files of rows, since these name parameters. The files that tasks
need are found in `inputs`.
"""
