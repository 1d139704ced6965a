//! A macro for enums that are stored or serialized as words.
//!
//! One list defines the enum, its words and the parser, so the three cannot disagree. Columns of tables can have the
//! enum as their type.

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant),* }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word as stored in tables and documents.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == word)
            }
        }

        impl $crate::record::CellType for $name {
            const KIND: $crate::record::ColumnType = $crate::record::ColumnType::Text;

            fn from_cell(cell: $crate::record::Value) -> Option<Self> {
                cell.as_text().and_then(Self::parse)
            }
        }

        impl From<$name> for $crate::record::Value {
            fn from(word: $name) -> Self {
                word.as_str().into()
            }
        }
    };
}

pub(crate) use words;
