"""Reading a user's scripts with LibCST, for whoever checks or rewrites them.

A module imports only from those above it.

    text       tree          walking a syntax tree; literals, arguments, dotted names
               scopes        names and the places where they get their values
               script        one file: its tree, parents, scopes, calls, the code of a node
               notebook      the cells of a notebook as one script
               reading       from a file to a script, or to why not
               edits         text that takes the place of other text
    values     names         what a name stands for, in full, also through imports
               origin        a place that a value may come from
               definitions   functions and classes of the project, and who calls them
               flags         argparse: what `args.x` is by default
               values        where a value comes from
               project       several scripts together: calls by name, what a place reaches
               programs      the scripts that people start, with their modules
    parts      gradients     backward, no_grad
               loaders       DataLoaders, the loops over them, and what they are for
               models        wrapped models, their parts, whether they were moved
               frameworks    Accelerate, Lightning and others that do part of the work
               used          what never runs, as nothing names it
               ranks         conditions on the rank, and places that only some ranks come to
               collectives   what brings the values of several ranks together
               outputs       saves and prints
               training      all parts of one program
    loops      turns         backward, clip, step, zero_grad, in the order of the program
               accumulation  several backwards for one step
               loss          what backward is called on, and what it is made of
               mentions      names that an expression mentions or a statement sets
               tally         what a loop sums up, and what becomes of it
"""
