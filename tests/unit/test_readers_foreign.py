"""Files of others given for a log are named, with the way in; logs that asad reads are not taken for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from asad.replay.readers.foreign import foreign

ROOT = Path(__file__).resolve().parents[2]

PBS_TEXT = (
    "01/02/2024 00:10:10;{};77.head;user=bo group=g jobname=j queue=q ctime=1704150000 start=1704150010 "
    "Resource_List.ncpus=2 end=1704150610 resources_used.walltime=00:10:00\n"
)
SGE_FIELDS = [
    "all.q",
    "n7",
    "g",
    "bo",
    "j",
    "77",
    "sge",
    "0",
    "1311093000",
    "1311093100",
    "1311093160",
    "0",
    "0",
]
SGE_TEXT = ":".join(
    [*SGE_FIELDS, "60", *("0",) * 20, "NONE", "dept", "mpi", "4", "0", "1.0", "0", "-", "0", "NONE"]
)
LSF_TEXT = (
    '"JOB_FINISH" "10.1" 1704150610 77 1001 33554435 4 1704150000 0 0 1704150010 "bo" "q" "" "" "" "h"\n'
)
CONDOR_TEXT = (
    'MyType = "Job"\nClusterId = 77\nProcId = 0\nOwner = "bo"\nQDate = 1704150000\nRequestCpus = 2\n'
)

NAMED = {
    "PBS: end": (PBS_TEXT.format("E"), "PBS"),
    "PBS: a licence before": (
        "01/02/2024 00:00:00;L;license;floating license hour:3\n" + PBS_TEXT.format("Q"),
        "PBS",
    ),
    "PBS: carriage returns": (PBS_TEXT.format("S").replace("\n", "\r\n"), "PBS"),
    "PBS: a byte-order mark": ("\ufeff" + PBS_TEXT.format("D"), "PBS"),
    "PBS: qstat": (
        '{"timestamp":1704150000,"pbs_version":"23","Jobs":{"77.head":{"Job_Name":"j"}}}',
        "qstat",
    ),
    "Grid Engine": (SGE_TEXT, "Grid Engine"),
    "Grid Engine: comments": ("# Version: 6.2u5\n#\n" + SGE_TEXT, "Grid Engine"),
    "Grid Engine: milliseconds": (SGE_TEXT.replace("1311093", "1311093000"), "Grid Engine"),
    "Grid Engine: never started": (
        SGE_TEXT.replace("1311093100", "0").replace("1311093160", "0"),
        "Grid Engine",
    ),
    "Grid Engine: colons in a name": (SGE_TEXT.replace(":j:", ":j:2:x:"), "Grid Engine"),
    "Grid Engine: qacct": ("=" * 60 + "\nqname        all.q\nhostname     n7\n", "Grid Engine"),
    "Grid Engine: JSON": ('{"job_number":77,"submission_time":1311093000000,"qname":"all.q"}', "Grid Engine"),
    "LSF": (LSF_TEXT, "LSF"),
    "LSF: events": ('"JOB_NEW" "10.1" 1704150000 77 1001 33554435 4 1704150000\n', "LSF"),
    "LSF: bacct": ("\nAccounting information about jobs that are: \n  - submitted by all users.\n", "LSF"),
    "HTCondor": (CONDOR_TEXT, "HTCondor"),
    "HTCondor: banner": ('*** Offset = 0 ClusterId = 77 ProcId = 0 Owner = "bo"\n', "HTCondor"),
    "HTCondor: JSON": ('[{"ClusterId": 77, "ProcId": 0, "Owner": "bo"}]', "HTCondor"),
    "HTCondor: events": ("000 (077.000.000) 2024-01-02 00:00:00 Job submitted from host: <h>\n", "HTCondor"),
    "Moab": ("00:05:05 1704150305:9 job 77 JOBEND 1 4 bo g 3600 Completed [q:1]\n", "Moab"),
    "Maui": ("00:05:05 1704150305 job 77 JOBEND 1 4 bo g 3600 Completed\n", "Maui"),
    "Flux": ('{"jobs": [{"id": 77, "userid": 1, "t_submit": 1704150000.1, "t_run": 1704150010.2}]}', "flux"),
    "squeue: JSON": (
        '{"jobs": [{"job_id": 77, "job_state": ["RUNNING"], "submit_time": 1704150000}]}',
        "squeue",
    ),
    "scontrol: JSON": (
        json.dumps(
            {
                "meta": {"command": ["show", "jobs"]},
                "jobs": [{"job_state": "PENDING", "submit_time": {"number": 1}}],
            }
        ),
        "scontrol show jobs",
    ),
    "squeue": (
        "   JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n  77 b j bo R 1:00 1 n7",
        "squeue",
    ),
    "squeue: long": (
        "Tue Jan 02 00:00:00 2024\nJOBID PARTITION NAME USER STATE TIME TIME_LIMIT NODES NODELIST(REASON)\n",
        "squeue",
    ),
    "squeue: format": (
        "JOBID|PARTITION|ST|SUBMIT_TIME|START_TIME\n77|b|R|2024-01-02T00:00:00|N/A\n",
        "squeue",
    ),
    "scontrol show job": ("JobId=77 JobName=j\n   UserId=bo(1001) GroupId=g(1001)\n", "scontrol show jobs"),
    "scontrol show job: array": (
        "JobId=78 ArrayJobId=77 ArrayTaskId=1 JobName=j UserId=bo(1001)\n",
        "scontrol show jobs",
    ),
    "jobcomp/filetxt": (
        "JobId=77 UserId=bo(1001) GroupId=g(1001) Name=j JobState=COMPLETED Partition=b TimeLimit=60 "
        "StartTime=2024-01-02T00:00:10 EndTime=2024-01-02T00:10:10 NodeList=n7 NodeCnt=1 ProcCnt=4\n",
        "jobcomp/filetxt",
    ),
    "sinfo: JSON": ('{"sinfo": [{"nodes": {"allocated": 1}, "partition": {"name": "b"}}]}', "--machine"),
    "nodes: JSON": ('{"nodes": [{"name": "n7", "cpus": 4, "real_memory": 8000}]}', "--machine"),
    "sinfo": ("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nb* up infinite 1 idle n7\n", "--machine"),
    "scontrol show node": ("NodeName=n7 Arch=x86_64 CoresPerSocket=2\n   CPUAlloc=0 CPUTot=4\n", "--machine"),
    "slurm.conf": ("# site\nAuthType=auth/munge\nSlurmUser=slurm\nNodeName=n[1-9] CPUs=4\n", "--machine"),
    "sreport": ("-" * 60 + "\nCluster Utilization 2024-01-01T00:00:00 - 2024-01-01T23:59:59\n", "sreport"),
    "sdiag": ("*" * 55 + "\nsdiag output at Tue Jan 02 00:00:00 2024 (1704153600)\n", "sdiag"),
    "Philly": (
        '[{"status": "Pass", "vc": "v", "jobid": "application_7", "attempts": [], "user": "bo"}]',
        "Philly",
    ),
    "Philly: GPUs": ("time,machineId,gpu0_util,gpu1_util\n2017-10-03 03:17:00 PDT,m1,0.0,1.0\n", "Philly"),
    "Philly: CPUs": ("time,machine_id,cpu_util\n2017-10-03 03:17:00 PDT,m1,7.0\n", "Philly"),
    "Philly: memory": ("time,machine_id,mem_total,mem_free\n2017-10-03 03:17:00 PDT,m1,1,1\n", "Philly"),
    "Philly: machines": ("machineId, number of GPUs, single GPU mem\nm1,2,12GB\n", "Philly"),
    "Eagle": (
        "job_id,user,account,partition,qos,wallclock_req,processors_req,submit_time,start_time,end_time,run_time\n",
        "Eagle",
    ),
    "SuperCloud": ("id_job,id_user,time_submit,time_start,time_end,cpus_req,state\n", "SuperCloud"),
    "SuperCloud: CPUs": ("Step,Node,Series,EpochTime,CPUFrequency\n", "SuperCloud"),
    "F-Data": ("jid,usr,jnam,cnumr,cnumat,nnumr,adt,qdt,elpl,sdt,edt,duration\n", "Fugaku"),
    "PM100": (
        "job_id;submit_time;start_time;end_time;run_time;num_cores_alloc;num_nodes_alloc\n",
        "Marconi100",
    ),
    "ALCF": ('"JOB_NAME","COBALT_JOBID","QUEUED_TIMESTAMP","START_TIMESTAMP","RUNTIME_SECONDS"\n', "Cobalt"),
    "Helios": (
        "job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n",
        "Helios",
    ),
    "Alibaba": ("M1,1,j_7,1,Terminated,100,200,100.0,0.5\n", "Alibaba"),
    "Alibaba: pods": (
        "name,cpu_milli,memory_mib,num_gpu,qos,creation_time,deletion_time,scheduled_time\n",
        "Alibaba",
    ),
    "Google": ("time,type,collection_id,instance_index,machine_id\n", "Google"),
    "Google: JSON": ('{"time":"0","type":"1","collection_id":"7","instance_index":"0"}\n', "Google"),
    "Grid Workloads Archive": (
        "# JobID\tSubmitTime\tWaitTime\tRunTime\tNProcs\n1\t0\t1\t10\t2\n",
        "Grid Workloads",
    ),
    "PBS: dates of ISO": ("2024-01-02 00:10:10;E;77.head;user=bo ctime=1704150000\n", "PBS"),
    "PBS: qstat, text": (
        "Job id            Name             User              Time Use S Queue\n---\n",
        "qstat",
    ),
    "PBS: qstat -f": ("Job Id: 77.head\n    Job_Name = j\n    Job_Owner = bo@h\n", "qstat"),
    "PBS: qstat -a": ("\nhead:\nJob ID    Username Queue    Jobname    SessID NDS TSK\n", "qstat"),
    "Grid Engine: qstat": (
        "job-ID  prior   name       user         state submit/start at     queue\n" + "-" * 60 + "\n",
        "Grid Engine's qstat",
    ),
    "LSF: bjobs": (
        "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME\n",
        "bjobs",
    ),
    "LSF: bjobs -json": (
        '{"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [{"JOBID": "1", "STAT": "RUN"}]}',
        "bjobs",
    ),
    "LSF: bhist": (
        "Summary of time in seconds spent in various states:\nJOBID USER JOB_NAME PEND PSUSP\n",
        "bhist",
    ),
    "LSF: bhist, the table": ("JOBID   USER    JOB_NAME  PEND    PSUSP   RUN     USUSP   SSUSP\n", "bhist"),
    "HTCondor: table": (" ID     OWNER          SUBMITTED   RUN_TIME     ST COMPLETED   CMD\n", "HTCondor"),
    "HTCondor: queue": ("OWNER  BATCH_NAME    SUBMITTED   DONE   RUN    IDLE  TOTAL JOB_IDS\n", "HTCondor"),
    "HTCondor: XML": (
        '<?xml version="1.0"?>\n<!DOCTYPE classads SYSTEM "classads.dtd">\n<classads>\n<c>\n',
        "HTCondor",
    ),
    "sacct: YAML": ("---\njobs:\n- account: x\n  job_id: 1\n  time:\n    elapsed: 600\n", "`sacct --json`"),
    "sacct: YAML with meta": ("meta:\n  plugin:\n    type: openapi/dbv0.0.37\njobs:\n- job_id: 1\n", "YAML"),
    "squeue: YAML": ("---\njobs:\n- account: x\n  job_id: 1\n  job_state:\n  - RUNNING\n", "squeue"),
    "sinfo: YAML": ("---\nmeta:\n  x: y\nnodes:\n- name: n1\n", "--machine"),
    "sacctmgr": ("Cluster|Account|User|Partition|Share\nc|a|bo||1\n", "sacctmgr"),
    "sacctmgr: users": ("User|Def Acct|Admin\nbo|a|None\n", "sacctmgr"),
    "sacctmgr: qos": ("Name|Priority|GraceTime|Preempt\nnormal|0|00:00:00|\n", "sacctmgr"),
    "seff": ("Job ID: 77\nCluster: c\nUser/Group: bo/bo\nState: COMPLETED (exit code 0)\n", "seff"),
    "jobcomp/elasticsearch": (
        '{"_source": {"jobid": 77, "@submit": "2024-01-02T00:00:00", "@start": "2024-01-02T00:00:00"}}',
        "jobcomp/elasticsearch",
    ),
    "a web page": ("\n<!doctype HTML>\n<html><head><title>Sign in</title></head></html>\n", "web page"),
    "Mustang": (
        "user_ID,group_ID,submit_time,start_time,end_time,wallclock_limit,job_status,node_count,tasks_requested\n",
        "Mustang",
    ),
    "Batsim": (
        '{"nb_res": 4, "jobs": [{"id": "7", "subtime": 0, "res": 2, "profile": "p"}], "profiles": {}}',
        "Batsim",
    ),
}
"""What it is → how it begins, and what must be in the message."""

LOGS = {
    "sacct": "JobID|JobName|User|State|Submit|Start|Elapsed|NCPUS|NodeList\n",
    "sacct: capitals": "JOBID|JOBNAME|USER|STATE|SUBMIT|START|ELAPSED|NCPUS|NODELIST\n",
    "sacct: colons": "JobID:JobName:State\n" + ":".join(["7"] * 50) + "\n",
    "sacct: a job is called as a squeue": "JobID|JobName|Submit\n7|JobId=7 JobName=x|2024-01-01T00:00:00\n",
    "sacct: without a header": "7|j|bo|COMPLETED|2024-01-01T00:00:00\n",
    "sacct: nodes in a comment": "JobID|Comment|Submit\n7|a\nNodeName=n1 CPUs=4|2024-01-01T00:00:00\n",
    "sacct: JSON": json.dumps(
        {
            "jobs": [
                {
                    "job_id": 7,
                    "association": {},
                    "time": {"submission": 1},
                    "steps": [],
                    "state": {"current": []},
                }
            ]
        }
    ),
    "sacct: JSON, of few keys": '{"jobs": [{"job_id": 7, "time": {"submission": 1, "start": 2, "end": 3}}]}',
    "JSON of nothing": "{}",
    "sacct: clusters and accounts": "JobID|Cluster|Account|User|QOS|Partition|NodeName|NodeList|Start|Priority\n",
    "sacct: a rule before it": "---\nJobID|JobName|Submit\n",
    "SWF": "; Computer: x\n; MaxNodes: 4\n1 0 1 10 4 -1 -1 4 60 -1 1 1 1 1 1 1 -1 -1\n",
    "nothing": "",
    "blanks": " \n\n\t\n",
    "bytes": "\x00\x01\ufffd" * 99,
    "a line without an end": "a" * 200_000,
    "many delimiters": ":" * 200_000,
    "many braces": "{" * 200_000,
}


@pytest.mark.parametrize("what", NAMED)
def test_it_is_named_with_the_way_in(what: str) -> None:
    start, words = NAMED[what]
    found = foreign(start)
    assert found is not None
    message = f"{found.problem}; {found.remedy}"
    assert words in message
    assert "sacct" in message or "SWF" in message or "slurm-log.csv" in message
    assert message.isprintable() and len(message) < 900


@pytest.mark.parametrize("what", LOGS)
def test_logs_and_what_is_nothing_are_not_taken_for_others(what: str) -> None:
    assert foreign(LOGS[what]) is None


def test_recorded_answers_of_slurm_are_distinguished() -> None:
    for path in (ROOT / "tests/golden/slurm").glob("*/*.json"):
        found = foreign(path.read_text(encoding="utf-8"))
        assert (found is None) == (path.name not in ("squeue.json", "sinfo.json")), path


def test_json_that_is_none_of_saccts_names_what_to_give() -> None:
    for what in (
        "squeue: JSON",
        "scontrol: JSON",
        "sinfo: JSON",
        "nodes: JSON",
        "Philly",
        "Flux",
        "Batsim",
        "PBS: qstat",
    ):
        found = foreign(NAMED[what][0])
        assert found is not None and "`sacct --json`" in f"{found.problem}; {found.remedy}", what
