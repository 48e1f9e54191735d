//! Reading one database's catalogue, over a connection that is closed afterwards.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use causeway_routing::Overrides;
use causeway_routing::catalogue::{
    CastRow, Catalogue, CatalogueBuilder, CodeRow, FunctionRow, InheritanceRow, OperatorRow, ReachRow,
    RelationRow, TypeRow,
};
use deadpool_postgres::{
    ClientWrapper, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Transaction,
};
use futures_util::TryStreamExt;
use tokio_postgres::{IsolationLevel, Row};

use super::sql;
use crate::error::describe;
use crate::login::{Connector, Login, is_unwelcome};

/// A catalogue and what tells it from later ones.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) fingerprint: String,
    /// By what it was judged, besides the database.
    pub(super) overrides: Arc<Overrides>,
    /// How many objects the database has.
    pub(super) size: u64,
}

/// Why a catalogue could not be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error("there is no primary")]
    NoPrimary,
    #[error("the database has {0} objects, more than {MOST_OBJECTS}")]
    TooLarge(u64),
    #[error("it took longer than {0:?}")]
    Timeout(Duration),
    #[error("{}", describe(.0))]
    Server(#[from] tokio_postgres::Error),
    #[error("{}", describe_pool(.0))]
    Connect(#[from] PoolError),
    #[error(transparent)]
    Pool(#[from] deadpool_postgres::BuildError),
    #[error("the catalogue could not be built: {0}")]
    Build(#[from] tokio::task::JoinError),
}

/// What is kept of a database is bounded: about this many objects, and this much text of views.
const MOST_OBJECTS: u64 = 200_000;
const MOST_DEFINITIONS: usize = 64 << 20;
/// A longer view is not going to be proven anything.
const LONGEST_DEFINITION: usize = 64 << 10;

/// Loads the catalogue, or `None` if its fingerprint is still `known`. Cancel-safe: the connection is closed.
pub(super) async fn load(
    login: Login,
    limit: Duration,
    known: Option<&str>,
    overrides: Arc<Overrides>,
) -> Result<Option<Loaded>, LoadError> {
    let mut client = connect(&login, limit).await?;
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    // Printing a view locks what it reads: a definition under way must not hold this up, nor this it.
    transaction.batch_execute("SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '20s'").await?;
    let row = transaction.query_one(sql::FINGERPRINT, &[]).await?;
    let fingerprint: String = row.try_get(0)?;
    if known == Some(fingerprint.as_str()) {
        return Ok(None);
    }
    // Some thousands of them are PostgreSQL's own, which do not matter at this limit.
    let size = u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or(u64::MAX);
    if size > MOST_OBJECTS {
        return Err(LoadError::TooLarge(size));
    }
    let mut builder = read(&Reader { transaction: &transaction, version: row.try_get(2)? }).await?;
    builder.overrides(Overrides::clone(&overrides));
    transaction.commit().await?;
    drop(client);
    // Thousands of views are a matter of seconds, which the monitors do not have.
    let catalogue = tokio::task::spawn_blocking(|| builder.build()).await?;
    let catalogue = Arc::new(catalogue.with_identity(rand::random()));
    Ok(Some(Loaded { catalogue, fingerprint, overrides, size }))
}

/// A transaction of a server of a version.
struct Reader<'a> {
    transaction: &'a Transaction<'a>,
    /// `server_version_num`.
    version: i32,
}

/// A connection that no pool gets back: none stays in a client's database.
async fn connect(login: &Login, limit: Duration) -> Result<ClientWrapper, LoadError> {
    let mut failure = LoadError::Timeout(limit);
    for (config, connector) in login.ways() {
        match take_one(config, connector, limit).await {
            Err(LoadError::Connect(PoolError::Backend(error))) if is_unwelcome(&error) => {
                failure = error.into();
            }
            done => return done,
        }
    }
    Err(failure)
}

async fn take_one(
    config: tokio_postgres::Config,
    connector: Connector,
    limit: Duration,
) -> Result<ClientWrapper, LoadError> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(config, connector, recycling);
    let pool = Pool::builder(manager)
        .max_size(1)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(limit))
        .create_timeout(Some(limit))
        .build()?;
    Ok(Object::take(pool.get().await?))
}

async fn read(reader: &Reader<'_>) -> Result<CatalogueBuilder, tokio_postgres::Error> {
    let mut builder = CatalogueBuilder::new();
    let mut definitions = 0;
    each(reader, sql::RELATIONS, |row| {
        let mut relation = relation(row)?;
        let length = relation.definition.as_ref().map_or(0, String::len);
        if length > LONGEST_DEFINITION || definitions + length > MOST_DEFINITIONS {
            relation.definition = None;
        } else {
            definitions += length;
        }
        builder.relation(relation);
        Ok(())
    })
    .await?;
    each(reader, sql::INHERITANCE, |row| {
        let (parent, child) = ((row.try_get(0)?, row.try_get(1)?), (row.try_get(2)?, row.try_get(3)?));
        builder.inheritance(InheritanceRow { parent, child });
        Ok(())
    })
    .await?;
    each(reader, sql::FUNCTIONS, |row| {
        builder.function(function(row)?);
        Ok(())
    })
    .await?;
    each(reader, sql::OPERATORS, |row| {
        let (schema, name, volatility) = (row.try_get(0)?, row.try_get(1)?, letter(row, 2)?);
        builder.operator(OperatorRow { schema, name, volatility });
        Ok(())
    })
    .await?;
    each(reader, sql::TYPES, |row| {
        let (schemas, names): (Vec<String>, Vec<String>) = (row.try_get(3)?, row.try_get(4)?);
        let parts = schemas.into_iter().zip(names).collect();
        let (schema, name, checks) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        builder.type_(TypeRow { schema, name, checks, parts });
        Ok(())
    })
    .await?;
    each(reader, sql::CASTS, |row| {
        let (target, implicit) = ((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?);
        builder.cast(CastRow { target, implicit, volatility: letter(row, 3)? });
        Ok(())
    })
    .await?;
    running(reader, &mut builder, definitions).await?;
    Ok(builder)
}

/// What functions do when they run, and what runs them. `read`: bytes of definitions so far.
async fn running(
    reader: &Reader<'_>,
    builder: &mut CatalogueBuilder,
    mut read: usize,
) -> Result<(), tokio_postgres::Error> {
    each(reader, sql::CODE, |row| {
        let source: Option<String> = row.try_get(2)?;
        read += source.as_ref().map_or(0, String::len);
        builder.code(CodeRow {
            name: row.try_get(0)?,
            language: row.try_get(1)?,
            source: source.filter(|_| read <= MOST_DEFINITIONS),
            volatility: letter(row, 3)?,
            extension: row.try_get(4)?,
        });
        Ok(())
    })
    .await?;
    each(reader, sql::REACH, |row| {
        let (relation, function, other) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        builder.reach(ReachRow { relation, function, other });
        Ok(())
    })
    .await
}

/// Row by row: an answer is never in memory as a whole.
async fn each(
    reader: &Reader<'_>,
    query: &str,
    mut take: impl FnMut(&Row) -> Result<(), tokio_postgres::Error>,
) -> Result<(), tokio_postgres::Error> {
    let none: [&str; 0] = [];
    let query = sql::for_version(query, reader.version);
    let mut rows = pin!(reader.transaction.query_raw(&*query, none).await?);
    while let Some(row) = rows.try_next().await? {
        take(&row)?;
    }
    Ok(())
}

fn relation(row: &Row) -> Result<RelationRow, tokio_postgres::Error> {
    Ok(RelationRow {
        schema: row.try_get(0)?,
        name: row.try_get(1)?,
        kind: letter(row, 2)?,
        persistence: letter(row, 3)?,
        row_security: row.try_get(4)?,
        definition: row.try_get(5)?,
        foreign_safe: row.try_get(6)?,
    })
}

fn function(row: &Row) -> Result<FunctionRow, tokio_postgres::Error> {
    let number = |index| row.try_get::<_, i16>(index).map(i16::cast_unsigned);
    Ok(FunctionRow {
        schema: row.try_get(0)?,
        name: row.try_get(1)?,
        arguments: number(2)?,
        defaults: number(3)?,
        variadic: row.try_get(4)?,
        volatility: letter(row, 5)?,
    })
}

/// A column of type `"char"`, cast to text; one that is empty means nothing to anybody.
fn letter(row: &Row, index: usize) -> Result<char, tokio_postgres::Error> {
    Ok(row.try_get::<_, &str>(index)?.chars().next().unwrap_or('\0'))
}

fn describe_pool(error: &PoolError) -> String {
    match error {
        PoolError::Backend(error) => describe(error),
        other => other.to_string(),
    }
}
