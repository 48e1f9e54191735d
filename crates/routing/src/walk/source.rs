//! What stands in FROM.

use sqlparser::ast::{
    Expr, FunctionArg, Join, JoinConstraint, JoinOperator, TableAlias, TableFactor, TableFunctionArgs,
    TableSample, TableSampleKind, TableSampleMethod, TableSampleModifier, TableSampleQuantity,
    TableWithJoins, XmlTableColumn, XmlTableColumnOption,
};

use super::{Outcome, UNLISTED, Walk, names};
use crate::symbols::Name;

impl Walk {
    pub(super) fn table(&mut self, table: &TableWithJoins) -> Outcome {
        let TableWithJoins { relation, joins } = table;
        self.factor(relation)?;
        for Join { relation, global, join_operator } in joins {
            if *global {
                return Err(UNLISTED);
            }
            self.factor(relation)?;
            match join_operator {
                JoinOperator::Join(constraint)
                | JoinOperator::Inner(constraint)
                | JoinOperator::Left(constraint)
                | JoinOperator::LeftOuter(constraint)
                | JoinOperator::Right(constraint)
                | JoinOperator::RightOuter(constraint)
                | JoinOperator::FullOuter(constraint)
                | JoinOperator::CrossJoin(constraint) => self.constraint(constraint)?,
                _ => return Err(UNLISTED),
            }
        }
        Ok(())
    }

    fn constraint(&mut self, constraint: &JoinConstraint) -> Outcome {
        match constraint {
            JoinConstraint::On(expr) => self.expr(expr),
            JoinConstraint::Using(_)
            | JoinConstraint::UsingAlias(..)
            | JoinConstraint::Natural
            | JoinConstraint::None => Ok(()),
        }
    }

    /// An alias, which may declare columns and, after a function, their types.
    pub(super) fn alias(&mut self, alias: &TableAlias) -> Outcome {
        let TableAlias { explicit: _, name, columns, at: None } = alias else {
            return Err(UNLISTED);
        };
        if !columns.is_empty() {
            self.listed.push(names::fold(name)?);
        }
        columns
            .iter()
            .filter_map(|column| column.data_type.as_ref())
            .try_for_each(|kind| self.data_type(kind))
    }

    fn factor(&mut self, factor: &TableFactor) -> Outcome {
        let alias = match factor {
            TableFactor::Table {
                name,
                alias,
                args,
                with_hints,
                version: None,
                with_ordinality: _,
                partitions,
                json_path: None,
                sample,
                index_directives,
                inheritance: _,
            } if with_hints.is_empty() && partitions.is_empty() && index_directives.is_empty() => {
                let name = names::object(name)?;
                match args {
                    Some(TableFunctionArgs { args, settings: None }) => self.table_function(name, args)?,
                    Some(_) => return Err(UNLISTED),
                    None => self.relation(name)?,
                }
                self.sample(sample.as_ref())?;
                alias
            }
            TableFactor::Derived { lateral: _, subquery, alias, sample } => {
                self.query(subquery)?;
                self.sample(sample.as_ref())?;
                alias
            }
            TableFactor::Function { lateral: _, name, args, with_ordinality: _, alias } => {
                self.table_function(names::object(name)?, args)?;
                alias
            }
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_offset_alias: None,
                with_ordinality: _,
            } => {
                self.call(Name { schema: None, name: "unnest".into(), builtin: false }, None)?;
                self.exprs(array_exprs)?;
                alias
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                self.table(table_with_joins)?;
                alias
            }
            TableFactor::XmlTable { namespaces, row_expression, passing, columns, alias } => {
                self.listed.extend(["columns", "passing", "ref"].map(Box::from));
                namespaces.iter().try_for_each(|namespace| self.expr(&namespace.uri))?;
                self.expr(row_expression)?;
                passing.arguments.iter().try_for_each(|argument| self.expr(&argument.expr))?;
                columns.iter().try_for_each(|column| self.xml_column(column))?;
                alias
            }
            _ => return Err(UNLISTED),
        };
        alias.as_ref().map_or(Ok(()), |alias| self.alias(alias))
    }

    fn table_function(&mut self, name: Name, args: &[FunctionArg]) -> Outcome {
        self.call(name, u16::try_from(args.len()).ok())?;
        args.iter().try_for_each(|arg| self.argument(arg))
    }

    fn xml_column(&mut self, column: &XmlTableColumn) -> Outcome {
        match &column.option {
            XmlTableColumnOption::ForOrdinality => Ok(()),
            XmlTableColumnOption::NamedInfo { r#type, path, default, nullable: _ } => {
                self.data_type(r#type)?;
                self.optional(path.as_ref())?;
                self.optional(default.as_ref())
            }
        }
    }

    fn sample(&mut self, sample: Option<&TableSampleKind>) -> Outcome {
        let sample = match sample {
            None => return Ok(()),
            Some(TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample)) => {
                sample
            }
        };
        let TableSample {
            modifier: TableSampleModifier::TableSample,
            name: Some(TableSampleMethod::Bernoulli | TableSampleMethod::System),
            quantity: Some(TableSampleQuantity { parenthesized: true, value, unit: None }),
            seed,
            bucket: None,
            offset: None,
        } = &**sample
        else {
            return Err(UNLISTED);
        };
        if seed.is_some() {
            self.listed.push("repeatable".into());
        }
        self.expr(value)
    }

    pub(super) fn optional(&mut self, expr: Option<&Expr>) -> Outcome {
        expr.map_or(Ok(()), |expr| self.expr(expr))
    }
}
