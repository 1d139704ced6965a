//! Declares tables and their row structs.
//!
//! `table!` takes the columns of a table with the types of its row struct, and makes the entry of the catalogue, the
//! names of the columns (`runs::status`), the struct and its decoder. The type of a field says what the database
//! stores and whether it may be null; marks in brackets add the rest of the schema. `part!` declares a struct with some
//! of the columns, for reads that fetch no others. Conditions, orders and changes use the names of the columns, so a
//! column that does not exist does not compile.

/// Declares a table.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $table:ident = $name:ident -> $row:ident {
            $($column:ident: $kind:ty $([$($mark:ident $(($argument:literal))?),+])?,)+
        }
        key: [$($key:ident),+],
        $(unique: [$($unique:ident),+],)*
        $(tenant: $tenant:ident,)?
        rank: $rank:literal,
    ) => {
        $(#[$doc])*
        pub static $table: $crate::record::Table = $crate::record::Table {
            name: stringify!($name),
            columns: &[$(
                $crate::record::Column::of::<$kind>($name::$column)$($(.$mark($($argument)?))+)?
            ),+],
            key: &[$($name::$key),+],
            uniques: &[$(&[$($name::$unique),+]),*],
            tenant: [$(Some($name::$tenant),)? None][0],
            rank: $rank,
        };

        #[doc = concat!("The columns of `", stringify!($name), "`.")]
        #[allow(non_upper_case_globals, reason = "columns are spelled as in the schema")]
        pub mod $name {
            $(pub const $column: &str = $crate::record::decode::name(stringify!($column));)+
        }

        #[doc = concat!("A row of `", stringify!($name), "`.")]
        #[derive(Clone, Debug, PartialEq)]
        pub struct $row {
            $(pub $column: $kind,)+
        }

        impl $crate::record::StoredRow for $row {
            const TABLE: &'static $crate::record::Table = &$table;
            const COLUMNS: &'static [&'static str] = &[$($name::$column),+];

            fn decode(row: $crate::record::Row) -> Result<Self, $crate::record::RowError> {
                let mut cells = $crate::record::decode::CellReader::new(&$table, row)?;
                Ok(Self { $($column: cells.next()?),+ })
            }

            fn peek(row: &$crate::record::Row) -> Result<Self, $crate::record::RowError> {
                Self::decode(row.clone())
            }

            fn documents(&self) -> impl Iterator<Item = &$crate::record::Json> {
                [$($crate::record::CellType::document(&self.$column)),+].into_iter().flatten()
            }
        }
    };
}

/// Declares a struct with some of a table's columns.
macro_rules! part {
    (
        $(#[$doc:meta])*
        $part:ident of $row:ident in $name:ident {
            $($column:ident: $kind:ty,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $part {
            $(pub $column: $kind,)+
        }

        impl $crate::record::StoredRow for $part {
            const TABLE: &'static $crate::record::Table = <$row as $crate::record::StoredRow>::TABLE;
            const COLUMNS: &'static [&'static str] = &[$($name::$column),+];

            fn decode(mut row: $crate::record::Row) -> Result<Self, $crate::record::RowError> {
                use $crate::record::{StoredRow, decode};
                decode::check_table(Self::TABLE, &row)?;
                Ok(Self {
                    $($column: decode::take(
                        Self::TABLE,
                        &mut row,
                        const { decode::position(<$row as StoredRow>::COLUMNS, $name::$column) },
                    )?),+
                })
            }

            fn peek(row: &$crate::record::Row) -> Result<Self, $crate::record::RowError> {
                use $crate::record::{StoredRow, decode};
                decode::check_table(Self::TABLE, row)?;
                Ok(Self {
                    $($column: decode::copy(
                        Self::TABLE,
                        row,
                        const { decode::position(<$row as StoredRow>::COLUMNS, $name::$column) },
                    )?),+
                })
            }

            fn documents(&self) -> impl Iterator<Item = &$crate::record::Json> {
                [$($crate::record::CellType::document(&self.$column)),+].into_iter().flatten()
            }
        }

        impl From<$row> for $part {
            fn from(row: $row) -> Self {
                Self { $($column: row.$column),+ }
            }
        }
    };
}

/// Declares a table without a tenant column, and the view that adds the scope of each row.
macro_rules! scoped_table {
    (
        $(#[$doc:meta])*
        $table:ident = $name:ident -> $row:ident,
        $view:ident = $view_name:ident -> $view_row:ident {
            $($column:ident: $kind:ty $([$($mark:ident $(($argument:literal))?),+])?,)+
        }
        key: [$($key:ident),+],
        $(unique: [$($unique:ident),+],)*
        rank: $rank:literal,
    ) => {
        $crate::record::table! {
            $(#[$doc])*
            $table = $name -> $row {
                $($column: $kind $([$($mark $(($argument))?),+])?,)+
            }
            key: [$($key),+],
            $(unique: [$($unique),+],)*
            rank: $rank,
        }

        $crate::record::table! {
            #[doc = concat!("`", stringify!($name), "` with the scope of each row.")]
            $view = $view_name -> $view_row {
                $($column: $kind $([$($mark $(($argument))?),+])?,)+
                tenant_id: String,
                campaign_id: Option<String>,
                swarm_task_id: Option<String>,
                trace_id: Option<String>,
            }
            key: [$($key),+],
            tenant: tenant_id,
            rank: 950,
        }
    };
}

pub(crate) use {part, scoped_table, table};
