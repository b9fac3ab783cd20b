"""Starting, watching and ending processes: the only package that forks or starts an interpreter.

signals    hold Ctrl-C back while processes are forked; describe how a process ended
ports      find a free port
fork       fork one child of this process, safely
replicas   run a function on several forked replicas, and collect what they return
fresh      start Python in a new interpreter
server     a process that has imported torch and forks programs on request
forked     ask that server to start a program
choose     decide whether a script may be forked or needs a fresh interpreter
sandbox    run a module apart from everything, with a time limit
tree       find and end processes, also those that left their group
"""
