//! How payment and order-status find a customer: by id, or by last name through the index (clauses
//! 2.5.1.2, 2.5.2.2, 2.6.1.2 and 2.6.2.2).

use super::keys::{self, DistrictId};
use super::random::{customer_id, last_name_at_run};
use super::scale::Scale;
use super::schema::{Tables, Text, unexpected};
use shoal_types::wire::Coded;
use shoal_types::{Random, Result, Scan, Transaction};

/// Which of a district's customers is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub enum Selection {
    /// The one with this C_ID.
    #[coded(tag = 0)]
    Id(u16),
    /// Of those with this C_LAST, ordered by C_FIRST, the one in the middle.
    #[coded(tag = 1)]
    LastName(Text<16>),
}

impl Selection {
    /// Draws a selection: in 60 % of the cases by last name.
    pub fn draw(random: &mut Random, scale: Scale) -> Selection {
        if random.chance(60, 100) {
            Selection::LastName(last_name_at_run(random, scale))
        } else {
            Selection::Id(customer_id(random, scale))
        }
    }

    /// Whether it goes by last name.
    pub fn is_by_name(&self) -> bool {
        matches!(self, Selection::LastName(_))
    }
}

/// The C_ID of the customer meant.
///
/// # Errors
/// Those of the database, and a rejection if no customer has the last name.
pub async fn find<X: Transaction>(
    tx: &X,
    tables: &Tables,
    district: DistrictId,
    selection: &Selection,
) -> Result<u16> {
    let DistrictId { warehouse: w, district: d } = district;
    let last = match selection {
        Selection::Id(id) => return Ok(*id),
        Selection::LastName(last) => last,
    };
    let prefix = keys::last_name(w, d, last);
    let namesakes = tx.scan(tables.customer_by_name, Scan::prefix(&prefix)).await?;
    // Of n the middle one is at n/2 rounded up, counted from one.
    let middle = namesakes.len().div_ceil(2).saturating_sub(1);
    let id = namesakes.get(middle).and_then(|(key, _)| keys::last_customer_id(key));
    id.ok_or_else(|| unexpected(None, tables.customer_by_name, &prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use futures_executor::block_on;
    use shoal_types::Database;

    #[test]
    fn of_namesakes_the_middle_one_is_meant() {
        let db = Model::new();
        let tables = Tables::open(&db).unwrap();
        let last = Text::new("BARBARBAR");
        let mut found = Vec::new();
        // Ids fall as first names rise: it is the first name that orders.
        for (id, first) in [(9, "Ann"), (7, "Bob"), (5, "Cyd"), (3, "Dot")] {
            block_on(db.transact(async |tx| {
                let key = keys::customer_by_name(1, 2, &last, &Text::new(first), id);
                tx.put(tables.customer_by_name, &key, &[])?;
                found.push(
                    find(
                        tx,
                        &tables,
                        DistrictId { warehouse: 1, district: 2 },
                        &Selection::LastName(last),
                    )
                    .await?,
                );
                Ok(())
            }))
            .unwrap();
        }
        assert_eq!(found, [9, 9, 7, 7]);
        let unknown = block_on(db.transact(async |tx| {
            find(tx, &tables, DistrictId { warehouse: 1, district: 3 }, &Selection::LastName(last))
                .await
        }));
        assert!(unknown.is_err());
    }
}
