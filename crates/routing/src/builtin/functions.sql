-- Prints functions.tsv: name and verdict of every function of PostgreSQL itself, sorted bytewise.
--   psql -XAt -F $'\t' -f functions.sql postgres
-- scripts/builtin-tables joins what several versions print.
-- Verdicts: r harmless on a hot standby, w writes or may, n its answer belongs to one node, e its effect does,
--           s makes or reads state of the server session, b both w and s.
-- A name is harmless only if all its overloads are. Stable and immutable functions are, unless listed below; volatile
-- ones are not, unless listed below.
\set QUIET on
SET client_min_messages = error;
WITH listed(verdict, names) AS (VALUES
  -- Volatile by their answer, but they change nothing.
  ('r', 'clock_timestamp timeofday random gen_random_uuid pg_sleep pg_sleep_for pg_sleep_until current_query lo_get
         pg_relation_size pg_table_size pg_total_relation_size pg_indexes_size pg_database_size pg_tablespace_size
         pg_partition_tree pg_partition_ancestors pg_xact_status txid_status pg_get_wal_resource_managers timezone'),
  -- Later versions.
  ('r', 'random_normal array_sample array_shuffle uuidv4 uuidv7 uuid_extract_timestamp uuid_extract_version any_value
         pg_input_is_valid pg_input_error_info erf erfc gamma lgamma casefold crc32 crc32c array_sort array_reverse
         to_bin to_oct system_user pg_basetype json_array json_object json_scalar json_serialize json_exists json_value
         json_query date_add date_subtract unicode_assigned unicode_version icu_unicode_version
         json_arrayagg json_objectagg'),
  -- They assign a transaction id, run SQL text, or check domains whose constraints may do anything.
  ('w', 'txid_current pg_current_xact_id
         table_to_xml table_to_xml_and_xmlschema table_to_xmlschema schema_to_xml schema_to_xml_and_xmlschema
         schema_to_xmlschema database_to_xml database_to_xml_and_xmlschema database_to_xmlschema
         domain_in domain_recv array_in array_recv record_in record_recv range_in range_recv multirange_in multirange_recv'),
  ('n', 'pg_is_in_recovery pg_is_wal_replay_paused pg_get_wal_replay_pause_state pg_last_wal_receive_lsn
         pg_last_wal_replay_lsn pg_last_xact_replay_timestamp pg_current_wal_lsn pg_current_wal_insert_lsn
         pg_current_wal_flush_lsn pg_walfile_name pg_walfile_name_offset pg_control_checkpoint pg_control_init
         pg_control_recovery pg_control_system pg_postmaster_start_time pg_conf_load_time inet_server_addr
         inet_server_port inet_client_addr inet_client_port pg_lock_status pg_blocking_pids
         pg_safe_snapshot_blocking_pids pg_prepared_xact pg_get_replication_slots pg_show_replication_origin_status
         pg_replication_origin_progress pg_current_snapshot txid_current_snapshot pg_last_committed_xact
         pg_xact_commit_timestamp pg_xact_commit_timestamp_origin pg_sequence_last_value pg_current_logfile
         pg_hba_file_rules pg_ident_file_mappings pg_show_all_file_settings pg_get_shmem_allocations
         pg_get_backend_memory_contexts pg_notification_queue_usage pg_jit_available pg_config
         pg_available_extensions pg_available_extension_versions pg_extension_update_paths pg_timezone_names
         pg_timezone_abbrevs pg_tablespace_location pg_collation_actual_version pg_database_collation_actual_version
         pg_ls_archive_statusdir pg_ls_dir pg_ls_logdir pg_ls_logicalmapdir pg_ls_logicalsnapdir pg_ls_replslotdir
         pg_ls_tmpdir pg_ls_waldir pg_stat_file pg_read_file pg_read_file_old pg_read_binary_file
         pg_isolation_test_session_is_blocked pg_is_in_backup pg_backup_start_time pg_ls_summariesdir
         pg_wal_summary_contents pg_available_wal_summaries pg_get_wal_summarizer_state pg_get_loaded_modules pg_get_aios
         pg_get_shmem_allocations_numa pg_numa_available pg_get_sequence_data pg_get_wait_events
         pg_timezone_abbrevs_abbrevs pg_timezone_abbrevs_zone'),
  ('e', 'pg_cancel_backend pg_terminate_backend pg_log_backend_memory_contexts pg_reload_conf pg_rotate_logfile
         pg_rotate_logfile_old pg_promote pg_wal_replay_pause pg_wal_replay_resume
         pg_create_physical_replication_slot pg_create_logical_replication_slot pg_copy_physical_replication_slot
         pg_copy_logical_replication_slot pg_drop_replication_slot pg_replication_slot_advance
         pg_logical_slot_get_changes pg_logical_slot_get_binary_changes pg_logical_slot_peek_changes
         pg_logical_slot_peek_binary_changes pg_sync_replication_slots
         pg_stat_reset pg_stat_reset_shared pg_stat_reset_single_table_counters pg_stat_reset_single_function_counters
         pg_stat_reset_slru pg_stat_reset_replication_slot pg_stat_reset_subscription_stats pg_stat_reset_backend_stats
         pg_stat_force_next_flush'),
  ('s', 'set_config current_setting setseed pg_backend_pid pg_my_temp_schema pg_is_other_temp_schema pg_cursor
         pg_prepared_statement pg_listening_channels pg_show_all_settings pg_stat_clear_snapshot
         pg_replication_origin_session_is_setup pg_replication_origin_session_progress'),
  ('b', 'currval lastval pg_advisory_lock pg_advisory_lock_shared pg_try_advisory_lock pg_try_advisory_lock_shared
         pg_advisory_unlock pg_advisory_unlock_shared pg_advisory_unlock_all pg_export_snapshot
         lo_open lo_close loread lowrite lo_lseek lo_lseek64 lo_tell lo_tell64 lo_truncate lo_truncate64 lo_creat
         pg_replication_origin_session_setup pg_replication_origin_session_reset')
), override AS (
  SELECT verdict, name FROM listed, regexp_split_to_table(names, '\s+') AS name
), found AS (
  SELECT p.proname::text AS name,
    CASE WHEN p.proname LIKE 'pg\_stat\_%' THEN 'n'
      WHEN bool_or(p.provolatile = 'v' OR p.prokind = 'p' OR p.proretset AND p.prorettype = 'trigger'::regtype
        OR p.prorettype IN ('trigger'::regtype, 'event_trigger'::regtype)) THEN 'w'
      ELSE 'r' END AS verdict
  FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace GROUP BY p.proname
)
SELECT name, coalesce(o.verdict, f.verdict) FROM found f FULL JOIN override o USING (name) ORDER BY name COLLATE "C";
