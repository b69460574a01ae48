//! Handovers: the control plane of a mobile network (Zeus, §8.1). Users request and release service at base stations, and
//! some move from one station to another while they are served.
//!
//! | type | transactions | does |
//! |---|---|---|
//! | request, release | 1 | changes the user and the station |
//! | handover | 2 | the first changes the user and the station that it leaves, the second the user and the one that it comes to |
//!
//! Every transaction writes two rows of 400 bytes. A fifth of the users is mobile; of what these do, the given share is a
//! handover. A user belongs to the home of its station, and clients of that home act for it; a remote handover has a station
//! of another home, where the user is from then on.
//!
//! Invariant: the users that a station serves are those whose rows say so.

use super::homes::{HomeClient, Homes, MILLION, key, number, row, visit_numbers};
use crate::rows;
use crate::workload::{Check, Done, Workload};
use shoal_types::{Database, Error, Result, TableId, Transaction};
use std::sync::{Mutex, MutexGuard, PoisonError};

const KINDS: [&str; 4] = ["request", "release", "handover: leave", "handover: arrive"];
const REQUEST: usize = 0;
const RELEASE: usize = 1;
const LEAVE: usize = 2;
const ARRIVE: usize = 3;

/// The length of a row of a user or a station.
const ROW_BYTES: usize = 400;

/// One of so many users is mobile.
const MOBILE_ONE_IN: u32 = 5;

/// What the row of a user says: that it is not served; else one more than the number of the station.
const NOT_SERVED: i64 = 0;

/// The parameters, beside how users are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandoverShares {
    /// The base stations of each home.
    pub stations: u32,
    /// Of a million transactions, how many are of handovers. The share of remote ones among them is that of [`Homes`].
    pub handovers_ppm: u32,
}

/// The benchmark's parameters and tables.
#[derive(Debug)]
pub struct Handovers {
    users: TableId,
    stations: TableId,
    homes: Homes,
    shares: HandoverShares,
    /// The users of each home that no client acts for at present.
    idle: Mutex<Vec<Vec<User>>>,
}

/// A user, as its client knows it.
#[derive(Debug, Clone, Copy)]
struct User {
    number: u32,
    station: u32,
    is_served: bool,
    /// The station that it comes to, if it has left the former one.
    arrives_at: Option<u32>,
}

/// What a transaction writes.
#[derive(Debug, Clone, Copy)]
struct Change {
    kind: usize,
    user: u32,
    station: u32,
}

impl Handovers {
    /// The benchmark over users that are divided so.
    ///
    /// # Errors
    /// Those of making the tables.
    ///
    /// # Panics
    /// If there is no home, user or station, or a share is more than all.
    pub fn new<D: Database>(db: &D, homes: Homes, shares: HandoverShares) -> Result<Handovers> {
        homes.check();
        assert!(shares.stations > 0, "a home needs a station");
        assert!(u64::from(shares.handovers_ppm) <= MILLION, "{shares:?}");
        let (users, stations) = (db.table("handovers.users")?, db.table("handovers.stations")?);
        let user = |home: u32| {
            move |index: u32| User {
                number: home * homes.objects + index,
                station: home * shares.stations + index % shares.stations,
                is_served: false,
                arrives_at: None,
            }
        };
        let idle = (0..homes.homes).map(|home| (0..homes.objects).map(user(home)).collect());
        Ok(Handovers { users, stations, homes, shares, idle: Mutex::new(idle.collect()) })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Vec<User>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_stations(&self) -> u32 {
        self.homes.homes * self.shares.stations
    }

    /// Takes an idle user of the home of the client.
    fn take(&self, client: &mut HomeClient) -> Result<User> {
        let mut idle = self.idle();
        let of_home = &mut idle[client.home as usize];
        if of_home.is_empty() {
            return Err(Error::reject("the home of a client has no user left"));
        }
        let at = client.random.below(of_home.len() as u64) as usize;
        Ok(of_home.swap_remove(at))
    }

    /// Gives a user to the home of the station where it is, or comes to.
    fn put_back(&self, user: User) {
        let station = user.arrives_at.unwrap_or(user.station);
        self.idle()[(station / self.shares.stations) as usize].push(user);
    }

    /// Draws what the user does next.
    fn draw(&self, client: &mut HomeClient, user: User) -> (Change, User) {
        let random = &mut client.random;
        let change = |kind, station| Change { kind, user: user.number, station };
        if let Some(station) = user.arrives_at {
            let user = User { station, is_served: true, arrives_at: None, ..user };
            return (change(ARRIVE, station), user);
        }
        if !user.is_served {
            return (change(REQUEST, user.station), User { is_served: true, ..user });
        }
        // Only the mobile users hand over. Every second transaction of theirs can begin it, and each has two.
        let share = u64::from(self.shares.handovers_ppm) * u64::from(MOBILE_ONE_IN);
        let is_mobile = user.number.is_multiple_of(MOBILE_ONE_IN);
        if !is_mobile || !random.chance(share.min(MILLION), MILLION) {
            return (change(RELEASE, user.station), User { is_served: false, ..user });
        }
        let home = self.homes.other_home(random, client.home);
        let station = random.below(self.shares.stations.into()) as u32;
        let arrives_at = Some(home * self.shares.stations + station);
        (change(LEAVE, user.station), User { is_served: false, arrives_at, ..user })
    }

    async fn run<X: Transaction>(&self, tx: &X, change: Change) -> Result<()> {
        let (user, station) = (change.user.to_be_bytes(), change.station.to_be_bytes());
        tx.prefetch(&[(self.users, &user[..]), (self.stations, &station[..])]);
        let at = number(tx.get_for_update(self.users, &user).await?)?;
        let served = number(tx.get_for_update(self.stations, &station).await?)?;
        let here = i64::from(change.station) + 1;
        let comes = matches!(change.kind, REQUEST | ARRIVE);
        if at != if comes { NOT_SERVED } else { here } {
            return Err(rows::corrupt("a user is at another station than its client knows"));
        }
        let user_row: [u8; ROW_BYTES] = row(if comes { here } else { NOT_SERVED });
        let station_row: [u8; ROW_BYTES] = row(served + if comes { 1 } else { -1 });
        tx.put(self.users, &user, &user_row)?;
        tx.put(self.stations, &station, &station_row)
    }
}

impl Workload for Handovers {
    type Client = HomeClient;

    fn name(&self) -> &'static str {
        "handovers"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let share = f64::from(self.shares.handovers_ppm) / 10_000.0;
        let own = [
            ("stations", self.all_stations().to_string()),
            ("handovers", format!("{share} % of transactions")),
        ];
        self.homes.parameters("users").into_iter().chain(own).collect()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn load_parts(&self) -> usize {
        self.homes.parts()
    }

    async fn load<D: Database>(
        &self,
        db: &D,
        part: usize,
        _seed: u64,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let empty = |number| (key(number), row::<ROW_BYTES>(0));
        if let Some(home) = self.homes.begins_home(part) {
            let first = u64::from(home * self.shares.stations);
            let stations = first..first + u64::from(self.shares.stations);
            rows::load(db, self.stations, stations, empty, loaded).await?;
        }
        rows::load(db, self.users, self.homes.part(part), empty, loaded).await
    }

    fn rows(&self) -> u64 {
        self.homes.all() + u64::from(self.all_stations())
    }

    fn client(&self, number: usize, seed: u64) -> HomeClient {
        self.homes.client(number, seed)
    }

    async fn next<D: Database>(&self, db: &D, client: &mut HomeClient) -> Result<Done> {
        let user = self.take(client)?;
        let (change, after) = self.draw(client, user);
        let mut runs = 0;
        let done = db.transact(async |tx| {
            runs += 1;
            self.run(tx, change).await
        });
        match done.await {
            Ok(()) => self.put_back(after),
            // It has not happened. Of an unknown outcome no client acts for the user any more.
            Err(error) => {
                if !matches!(error, Error::Unknown(_)) {
                    self.put_back(user);
                }
                return Err(error);
            }
        }
        Ok(Done { kind: change.kind, retries: runs - 1, rolled_back: false })
    }

    async fn check<D: Database>(&self, db: &D) -> Result<Vec<Check>> {
        let stations = u64::from(self.all_stations());
        let (mut missing, mut differs) = (0, 0);
        let mut served = vec![0_i64; stations as usize];
        missing += visit_numbers(db, self.users, self.homes.all(), |_, at| {
            if at != NOT_SERVED {
                served[at as usize - 1] += 1;
            }
        })
        .await?;
        missing += visit_numbers(db, self.stations, stations, |at, count| {
            differs += u64::from(count != served[at as usize]);
        })
        .await?;
        Ok(vec![
            Check::equal("handovers: rows that are missing = 0", missing, 0),
            Check::equal(
                "handovers: stations that serve others than the users whose rows say so = 0",
                differs,
                0,
            ),
        ])
    }
}
