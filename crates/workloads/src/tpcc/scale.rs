//! How large a database is (clauses 1.2.1 and 4.3.3).

use shoal_types::{Error, Result};

/// Districts of a warehouse. Not a parameter: a stock row has a text for each of the ten.
pub const DISTRICTS: u8 = 10;

/// Most lines of an order (clause 2.4.1.3).
pub const LINES_MAX: u8 = 15;

/// Fewest lines of an order (clause 2.4.1.3).
pub const LINES_MIN: u8 = 5;

/// The numbers of rows of the initial population.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses, the unit of scale.
    pub warehouses: u16,
    /// Items, and rows of stock in every warehouse.
    pub items: u32,
    /// Customers of a district; each has one order at first.
    pub customers: u16,
    /// Orders of a district that are not delivered at first: the last ones.
    pub undelivered: u16,
}

impl Scale {
    /// The scale that the specification demands for this many warehouses.
    pub fn specification(warehouses: u16) -> Scale {
        Scale { warehouses, items: 100_000, customers: 3_000, undelivered: 900 }
    }

    /// A database of a few thousand rows, for tests: the same shape, quick to load and to check.
    pub fn small(warehouses: u16) -> Scale {
        Scale { warehouses, items: 100, customers: 30, undelivered: 9 }
    }

    /// Refuses a database that would have no rows of some kind.
    ///
    /// # Errors
    /// [`Rejected::Procedure`](shoal_types::Rejected::Procedure), naming the parameter.
    pub fn validate(self) -> Result<Scale> {
        let Scale { warehouses, items, customers, undelivered } = self;
        if warehouses == 0 || items == 0 || customers == 0 {
            return Err(Error::reject("TPC-C needs at least one warehouse, item and customer"));
        }
        if items == u32::MAX {
            return Err(Error::reject("TPC-C needs an unused item number; ask for fewer items"));
        }
        if undelivered > customers {
            return Err(Error::reject(format!(
                "TPC-C cannot leave {undelivered} of a district's {customers} orders undelivered"
            )));
        }
        Ok(self)
    }

    /// Orders of a district at first: one a customer.
    pub fn orders(self) -> u32 {
        u32::from(self.customers)
    }

    /// Orders of a district that are delivered at first; their ids are 1 to this.
    pub fn delivered(self) -> u32 {
        u32::from(self.customers - self.undelivered)
    }

    /// How many last names there are, numbered from 0: all thousand, if there are customers enough
    /// to bear them.
    pub fn last_names(self) -> u16 {
        self.customers.min(1000)
    }

    /// An item number that no item has (clause 2.4.1.5).
    pub fn unused_item(self) -> u32 {
        self.items + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_scales_are_refused() {
        assert!(Scale::specification(1).validate().is_ok());
        assert!(Scale::small(0).validate().is_err());
        assert!(Scale { undelivered: 31, ..Scale::small(1) }.validate().is_err());
        assert!(Scale { items: u32::MAX, ..Scale::small(1) }.validate().is_err());
    }
}
