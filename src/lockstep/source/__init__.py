"""Read a user's scripts with LibCST, to check or rewrite them.

A module imports only from those above it.

    text       tree            walks a syntax tree; literals, arguments, dotted names
               scopes          names and the places where they get their values
               script          one file: its tree, parents, scopes, calls; where a value is from
               notebook        reads the cells of a notebook as one script
               reading         reads a file as a script, or gives the reason why not
               edits           replaces parts of a text
               own_loop        tells a program with a training loop of its own from a recipe
    values     names           finds what a name stands for, also through imports
               definitions     finds functions and classes of the project, and their calls
               flags           finds defaults of argparse: what `args.x` is
               values          follows a value to where it comes from
               callers         finds all places that may call a function
               conditions      judges a condition by its text, as several ranks see it
               learned         learns which conditions hold where a program starts its ranks
               live            decides what runs while several ranks train
               project         several scripts together: calls by name, what a place reaches
               programs        finds the scripts that people start, with their modules
    parts      ranks           finds conditions on the rank
               gradients       finds backward and no_grad
               loaders         a DataLoader: its arguments, and what it is for
               loader_loops    finds DataLoaders, and the loops over them
               models          finds wrapped models, their parts, and their devices
               frameworks      finds Accelerate, Lightning and others
               unused_code     finds code that never runs, because nothing names it
               collectives     finds calls that combine the values of several ranks
               outputs         names of calls that save, print or log
               training        all parts of one program
    loops      training_loops  finds backward, clip, step and zero_grad, in the program's order
               accumulation    finds several backwards for one step
               loss            finds the loss of a backward, and what it is made of
               name_uses       finds names that an expression uses or a statement sets
               loop_metrics    finds what a loop sums up, and what the program does with it
               every_rank      finds code that every rank runs
               sure            finds code that every rank certainly runs
"""
