-- Nothing ever wrote what the learner of a run knows: what outlives a process is in `learned`.

DROP TABLE learner;
