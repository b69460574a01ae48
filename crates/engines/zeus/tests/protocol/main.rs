//! The protocol of several nodes, without sockets: scripts whose traces are kept, and random runs that are judged.

mod checks;
mod cluster;
mod disk;
mod history;
mod kills;
mod limits;
mod load;
mod planted;
mod random;
mod restarts;
mod scripts;
