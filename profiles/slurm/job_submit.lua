-- Keeps users out of the guest partitions: only asad's user, root and SlurmUser send jobs there, and say on which nodes.
--
-- Copy it to the folder of slurm.conf on the controller, set the names below, and add `JobSubmitPlugins=lua` to slurm.conf.
-- If you have a job_submit.lua already, copy everything down to the line of dashes into it, and begin your own two functions
-- with the two lines that begin those at the end. `asactl doctor` looks for `asad_user`.

asad_user = "asad"
slurm_user = "slurm"
guest_partitions = { guest = true }

-- Numbers of users that are not in /etc/passwd of the controller (LDAP): { asad = 64001 }
user_ids = {}

local function uid_of(name)
   if user_ids[name] == nil then
      local passwd = io.open("/etc/passwd")
      for line in passwd and passwd:lines() or function() end do
         local user, uid = line:match("^([^:]+):[^:]*:(%d+):")
         if user == name then
            user_ids[name] = tonumber(uid)
         end
      end
      if passwd then
         passwd:close()
      end
   end
   return user_ids[name]
end

-- Why `uid` may not send a job to `partitions` (names between commas, or nil), or nil if it may.
function asad_refuses(partitions, uid)
   if uid == 0 or partitions == nil or uid == uid_of(asad_user) or uid == uid_of(slurm_user) then
      return nil
   end
   for name in string.gmatch(partitions, "[^,%s]+") do
      if guest_partitions[name] then
         return "partition " .. name .. " is asad's: it moves waiting jobs there by itself; submit as you would without"
      end
   end
   return nil
end

-- Why `uid` may not change a job so: a job that asad has sent to a guest partition stays on the nodes that it was offered
-- there, or goes back. On others it would run beside jobs of whomever.
function asad_refuses_change(job_desc, job_rec, uid)
   local why = asad_refuses(job_desc.partition, uid)
   if why or job_desc.partition ~= nil or not guest_partitions[job_rec.partition] then
      return why
   end
   local nodes = job_desc.req_nodes ~= nil
   for _, field in ipairs({ "min_nodes", "max_nodes" }) do
      nodes = nodes or (job_desc[field] ~= nil and job_desc[field] ~= slurm.NO_VAL)
   end
   if nodes and asad_refuses(job_rec.partition, uid) then
      return "it has an offer of asad for the nodes that it is bound to; move it to its own partition first"
   end
   return nil
end

-- ------------------------------------------------------------------------------------------------------------------

function slurm_job_submit(job_desc, part_list, submit_uid)
   local why = asad_refuses(job_desc.partition, submit_uid)
   if why then slurm.log_user("%s", why) return slurm.ESLURM_ACCESS_DENIED end
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   local why = asad_refuses_change(job_desc, job_rec, modify_uid)
   if why then slurm.log_user("%s", why) return slurm.ESLURM_ACCESS_DENIED end
   return slurm.SUCCESS
end
