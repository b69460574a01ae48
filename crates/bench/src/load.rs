//! The workloads that can be measured, with their parameters.

use shoal_types::{Database, Result};
use shoal_workloads::increments::Increments;
use shoal_workloads::locality::{
    HandoverShares, Handovers, Homes, SmallBank, Tatp, Updates, Voter, VoterMoves,
};
use shoal_workloads::micro::Micro;
use shoal_workloads::placed::{Placed, PlacedMicro};
use shoal_workloads::tpcc::{Kind, Scale, TpcC};
use shoal_workloads::workload::Workload;
use shoal_workloads::ycsb::{Distribution, Letter, Ycsb};
use std::marker::PhantomData;

/// A workload and its parameters.
#[derive(Debug, Clone, Copy)]
pub enum BenchLoad {
    /// Order entry, after the specification of TPC-C.
    TpcC(TpccLoad),
    /// The micro-benchmark of the Mako paper.
    Micro(MicroLoad),
    /// The micro-benchmark of the Tiga paper.
    Increments(IncrementsLoad),
    /// One of the workloads of YCSB.
    Ycsb(YcsbLoad),
    /// SmallBank; objects are accounts.
    SmallBank(HomesLoad),
    /// TATP; objects are subscribers.
    Tatp(HomesLoad),
    /// Votes; objects are voters. Others may be moved from home to home.
    Voter(HomesLoad, Option<VoterMoves>),
    /// Updates of rows of 400 bytes.
    Updates(HomesLoad),
    /// Handovers of a mobile network; objects are users.
    Handovers(HomesLoad, HandoverShares),
}

/// The parameters of TPC-C.
#[derive(Debug, Clone, Copy)]
pub struct TpccLoad {
    /// The warehouses and what is in each. A cluster needs as many warehouses as it has shards, or more.
    pub scale: Scale,
    /// Whether all transactions are new orders, instead of the standard mix.
    pub new_orders_only: bool,
    /// Whether the home warehouse of each transaction is drawn, instead of the client's own.
    pub any_home: bool,
    /// Whether transactions are calls of procedures.
    pub calls: bool,
    /// Whether payments by name and order-statuses are no calls all the same.
    pub interactive_multi_shot: bool,
}

/// The parameters of the micro-benchmark.
#[derive(Debug, Clone, Copy)]
pub struct MicroLoad {
    /// The number of keys of each shard, of which a database that is not a cluster of this process has one.
    pub keys_of_shard: u32,
    /// Of a hundred transactions on several shards, how many have one of their four keys on another shard.
    pub cross_percent: u32,
    /// Whether each transaction on a cluster of this process writes, instead of every second one.
    pub all_write: bool,
    /// Whether transactions are calls of a procedure.
    pub calls: bool,
}

/// The parameters of the increments on several shards.
#[derive(Debug, Clone, Copy)]
pub struct IncrementsLoad {
    /// The number of keys of each shard, of which a database that is not a cluster of this process has one.
    pub keys_of_shard: u32,
    /// Which keys of a shard are hot.
    pub distribution: Distribution,
    /// Whether transactions are calls of a procedure.
    pub calls: bool,
}

/// The parameters of YCSB.
#[derive(Debug, Clone, Copy)]
pub struct YcsbLoad {
    /// Which of its workloads it is.
    pub letter: Letter,
    /// The number of rows at the beginning.
    pub keys: u32,
    /// The size of a value, in bytes.
    pub value_bytes: usize,
    /// Which rows are hot.
    pub distribution: Distribution,
    /// Whether transactions are calls of procedures.
    pub calls: bool,
}

/// The parameters of workloads whose objects have homes: the shards of a cluster of this process. Any other database is one
/// home.
#[derive(Debug, Clone, Copy)]
pub struct HomesLoad {
    /// The number of objects of each home.
    pub objects: u32,
    /// Of a million transactions that write, how many take an object of another home.
    pub remote_ppm: u32,
}

impl HomesLoad {
    fn homes(self, homes: u32) -> Homes {
        Homes { homes, objects: self.objects, remote_ppm: self.remote_ppm }
    }
}

/// A workload that can be set up on any database.
pub(crate) trait Load {
    /// The workload on a database whose shards are not known.
    type Whole: Workload + 'static;
    /// The workload on a cluster that is divided for it.
    type Placed: Placed;

    /// Sets the workload up on a database whose shards are not known.
    fn whole<D: Database>(&self, db: &D) -> Result<Self::Whole>;

    /// Sets the workload up on a cluster of so many shards.
    fn placed<D: Database>(&self, db: &D, shards: u32) -> Result<Self::Placed>;
}

/// Evaluates `$value` with `$load`, of another type for each workload.
macro_rules! with_load {
    ($bench_load:expr, $load:ident => $value:expr) => {
        match $bench_load {
            $crate::load::BenchLoad::TpcC($load) => $value,
            $crate::load::BenchLoad::Micro($load) => $value,
            $crate::load::BenchLoad::Increments($load) => $value,
            $crate::load::BenchLoad::Ycsb($load) => $value,
            $crate::load::BenchLoad::SmallBank(homes) => {
                let $load =
                    &$crate::load::OverHomes::<shoal_workloads::locality::SmallBank>::new(*homes);
                $value
            }
            $crate::load::BenchLoad::Tatp(homes) => {
                let $load =
                    &$crate::load::OverHomes::<shoal_workloads::locality::Tatp>::new(*homes);
                $value
            }
            $crate::load::BenchLoad::Voter(homes, moves) => {
                let $load = &(*homes, *moves);
                $value
            }
            $crate::load::BenchLoad::Updates(homes) => {
                let $load =
                    &$crate::load::OverHomes::<shoal_workloads::locality::Updates>::new(*homes);
                $value
            }
            $crate::load::BenchLoad::Handovers(homes, shares) => {
                let $load = &(*homes, *shares);
                $value
            }
        }
    };
}
pub(crate) use with_load;

impl Load for TpccLoad {
    type Whole = TpcC;
    type Placed = TpcC;

    fn whole<D: Database>(&self, db: &D) -> Result<TpcC> {
        let tpcc = TpcC::new(db, self.scale)?;
        let tpcc = if self.new_orders_only { tpcc.of_kind(Kind::NewOrder) } else { tpcc };
        let tpcc = if self.any_home { tpcc.at_any_home() } else { tpcc };
        let tpcc = if self.calls { tpcc.calling() } else { tpcc };
        Ok(if self.interactive_multi_shot { tpcc.with_interactive_multi_shot() } else { tpcc })
    }

    fn placed<D: Database>(&self, db: &D, _shards: u32) -> Result<TpcC> {
        self.whole(db)
    }
}

impl Load for MicroLoad {
    type Whole = Micro;
    type Placed = PlacedMicro;

    fn whole<D: Database>(&self, db: &D) -> Result<Micro> {
        let micro = Micro::new(db, self.keys_of_shard)?;
        Ok(if self.calls { micro.calling() } else { micro })
    }

    fn placed<D: Database>(&self, db: &D, shards: u32) -> Result<PlacedMicro> {
        let micro = PlacedMicro::new(db, shards, self.keys_of_shard, self.cross_percent)?;
        let micro = if self.all_write { micro.writing() } else { micro };
        Ok(if self.calls { micro.calling() } else { micro })
    }
}

impl Load for IncrementsLoad {
    type Whole = Increments;
    type Placed = Increments;

    fn whole<D: Database>(&self, db: &D) -> Result<Increments> {
        self.placed(db, 1)
    }

    fn placed<D: Database>(&self, db: &D, shards: u32) -> Result<Increments> {
        let IncrementsLoad { keys_of_shard, distribution, calls } = *self;
        let increments = Increments::new(db, shards, keys_of_shard, distribution)?;
        Ok(if calls { increments.calling() } else { increments })
    }
}

impl Load for YcsbLoad {
    type Whole = Ycsb;
    type Placed = Ycsb;

    fn whole<D: Database>(&self, db: &D) -> Result<Ycsb> {
        let YcsbLoad { letter, keys, value_bytes, distribution, calls } = *self;
        let ycsb = Ycsb::new(db, letter, keys, value_bytes, distribution)?;
        Ok(if calls { ycsb.calling() } else { ycsb })
    }

    fn placed<D: Database>(&self, db: &D, _shards: u32) -> Result<Ycsb> {
        self.whole(db)
    }
}

/// A workload whose objects have homes.
pub(crate) struct OverHomes<W>(HomesLoad, PhantomData<W>);

impl<W> OverHomes<W> {
    pub(crate) fn new(load: HomesLoad) -> OverHomes<W> {
        OverHomes(load, PhantomData)
    }
}

/// Implements `Load` for workloads whose objects have homes.
macro_rules! over_homes {
    ($($workload:ty),*) => {
        $(impl Load for OverHomes<$workload> {
            type Whole = $workload;
            type Placed = $workload;

            fn whole<D: Database>(&self, db: &D) -> Result<$workload> {
                self.placed(db, 1)
            }

            fn placed<D: Database>(&self, db: &D, shards: u32) -> Result<$workload> {
                <$workload>::new(db, self.0.homes(shards))
            }
        })*
    };
}

over_homes!(SmallBank, Tatp, Updates);

impl Load for (HomesLoad, Option<VoterMoves>) {
    type Whole = Voter;
    type Placed = Voter;

    fn whole<D: Database>(&self, db: &D) -> Result<Voter> {
        self.placed(db, 1)
    }

    fn placed<D: Database>(&self, db: &D, shards: u32) -> Result<Voter> {
        let voter = Voter::new(db, self.0.homes(shards))?;
        Ok(match self.1 {
            Some(moves) => voter.moving(moves),
            None => voter,
        })
    }
}

impl Load for (HomesLoad, HandoverShares) {
    type Whole = Handovers;
    type Placed = Handovers;

    fn whole<D: Database>(&self, db: &D) -> Result<Handovers> {
        self.placed(db, 1)
    }

    fn placed<D: Database>(&self, db: &D, shards: u32) -> Result<Handovers> {
        Handovers::new(db, self.0.homes(shards), self.1)
    }
}
