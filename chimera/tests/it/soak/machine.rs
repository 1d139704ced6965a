//! Faults of the environment while nodes are killed: the disk, the clock, Redis, lane claims.

use super::effect_server::EffectServer;
use crate::support::Workspace;
use chimera_testkit::postgres::{PrivatePostgres, TableLock};
use chimera_testkit::preload::{FaultyDisk, WallClock, merge_env};
use chimera_testkit::redis::PrivateRedis;
use std::collections::BTreeMap;

const DAY: i64 = 86_400;
const HOUR: i64 = 3_600;

/// How long a blocking fault lasts, in waits of 200 ms.
const FAULT_WAITS: u64 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MachineFault {
    /// Every flush, and so every claim of a lane, takes longer.
    SlowDisk,
    FailingFlush,
    FullDisk,
    /// The wall clock is a day ahead.
    DayAhead,
    /// The wall clock is an hour behind.
    HourBack,
    /// Redis is down.
    LostRedis,
    /// No lane can be claimed.
    SlowClaim,
}

impl MachineFault {
    /// Whether it blocks all work.
    pub(crate) const fn blocks(self) -> bool {
        matches!(self, Self::FailingFlush | Self::FullDisk | Self::LostRedis | Self::SlowClaim)
    }

    /// Whether a node logs it as an error.
    const fn breaks_the_store(self) -> bool {
        matches!(self, Self::FailingFlush | Self::FullDisk | Self::SlowClaim)
    }
}

/// The machine that the nodes run on, with injected faults.
pub(crate) struct Machine {
    disk: FaultyDisk,
    clock: WallClock,
    redis: Option<PrivateRedis>,
    database: Option<String>,
    lock: Option<TableLock>,
    now: Option<MachineFault>,
    broken: bool,
    seen: BTreeMap<MachineFault, usize>,
}

impl Machine {
    /// A machine for one node with SQLite.
    pub(crate) fn embedded() -> Self {
        Self {
            disk: FaultyDisk::new(),
            clock: WallClock::new(),
            redis: None,
            database: None,
            lock: None,
            now: None,
            broken: false,
            seen: BTreeMap::new(),
        }
    }

    /// A machine with PostgreSQL and Redis.
    pub(crate) fn shared() -> Self {
        let database = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
        Self { redis: Some(PrivateRedis::start()), database: Some(database), ..Self::embedded() }
    }

    /// Configures a place so that its servers run on this machine.
    pub(crate) fn place(&self, place: Workspace) -> Workspace {
        let env = merge_env(&[self.disk.env(), self.clock.env()]);
        let place = env.iter().fold(place, |place, (name, value)| place.server_env(name, value));
        let place = match &self.database {
            Some(url) => place.env("CHIMERA_DATABASE_URL", url),
            None => place,
        };
        match &self.redis {
            Some(redis) => place.env("CHIMERA_REDIS_URL", &redis.url()),
            None => place,
        }
    }

    /// The possible faults, repeated by weight.
    pub(crate) const fn troubles(&self) -> &'static [MachineFault] {
        use MachineFault::{DayAhead, FailingFlush, FullDisk, HourBack, LostRedis, SlowClaim, SlowDisk};
        match self.redis {
            None => &[SlowDisk, SlowDisk, FailingFlush, FullDisk, DayAhead, HourBack],
            Some(_) => &[SlowClaim, SlowClaim, LostRedis, DayAhead, HourBack],
        }
    }

    /// Injects a fault.
    pub(crate) fn begin(&mut self, trouble: MachineFault) {
        self.heal();
        match trouble {
            MachineFault::SlowDisk => self.disk.slow(40),
            MachineFault::FailingFlush => self.disk.fail_flushes(),
            MachineFault::FullDisk => self.disk.fail_writes(),
            MachineFault::DayAhead => self.clock.set(DAY),
            MachineFault::HourBack => self.clock.set(-HOUR),
            MachineFault::LostRedis => self.redis.as_mut().unwrap().stop(),
            MachineFault::SlowClaim => {
                let url = self.database.as_ref().unwrap();
                self.lock = Some(PrivatePostgres::shared().unwrap().lock(url, "ledger_lanes").unwrap());
            }
        }
        self.now = Some(trouble);
        self.broken |= trouble.breaks_the_store();
        *self.seen.entry(trouble).or_default() += 1;
    }

    /// Waits while a fault blocks all work.
    pub(crate) fn wait_out(&self, outside: &EffectServer) {
        (0..FAULT_WAITS).for_each(|_| outside.wait_briefly(u64::MAX));
    }

    /// Ends the current fault.
    pub(crate) fn heal(&mut self) {
        self.disk.slow(0);
        self.clock.set(0);
        self.lock = None;
        if self.now.take() == Some(MachineFault::LostRedis) {
            self.redis.as_mut().unwrap().restart();
        }
    }

    /// Restarts Redis, which loses its data.
    pub(crate) fn reset_redis(&mut self) {
        self.redis.iter_mut().for_each(PrivateRedis::restart);
    }

    /// Corrects the wall clock.
    pub(crate) fn set_clock_right(&self) {
        self.clock.set(0);
    }

    /// Whether a fault has broken the store at some time.
    pub(crate) const fn was_broken(&self) -> bool {
        self.broken
    }

    /// A fault that makes a starting node wait for its lane.
    pub(crate) const fn slow_start(&self) -> MachineFault {
        if self.database.is_some() { MachineFault::SlowClaim } else { MachineFault::SlowDisk }
    }

    /// The number of faults of each kind.
    pub(crate) fn fault_counts(&self) -> String {
        self.seen.iter().map(|(trouble, times)| format!("{trouble:?} {times}")).collect::<Vec<_>>().join(", ")
    }
}
