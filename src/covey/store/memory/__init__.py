"""The record in plain dictionaries: for the simulator and for tests of what a record promises."""
