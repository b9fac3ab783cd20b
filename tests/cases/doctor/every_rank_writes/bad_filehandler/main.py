import yaml

from dist_setup import launch, shutdown
from log import build_logger
from loop import run


def main():
    with open("config.yaml") as fh:
        cfg = yaml.safe_load(fh)
    rank, local_rank, world = launch(cfg["dist"]["backend"])
    logger = build_logger("segment", cfg["log_file"])
    if rank == 0:
        logger.info("world size %d", world)
    run(cfg, rank, local_rank, logger)
    shutdown()


if __name__ == "__main__":
    main()
